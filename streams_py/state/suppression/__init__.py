"""The buffer of ``suppress``: latest changes by key that wait for their time."""
