"""Operators: what the nodes of a topology do with a record. One plain function per node and task."""
