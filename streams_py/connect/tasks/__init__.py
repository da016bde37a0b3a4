"""The threads of jobs: one thread for each connector and each task."""
