"""Limits for users of the REST interface: classes, files, client settings, secrets.

A user who can send requests to a worker can create connectors. These modules limit what a configuration can reach on
the worker's host.
"""
