"""Operators: the behaviour of a topology's nodes, one plain function per node and task."""
