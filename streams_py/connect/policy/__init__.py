"""What users of the REST interface may ask of a worker: classes, files, client settings, secrets.

Whoever can send a request to a worker can create connectors. These modules bound what a configuration can reach on the
worker's host.
"""
