"""Benchmarks of this library and of peers, in one run. `python3 run.py bench --help`."""
