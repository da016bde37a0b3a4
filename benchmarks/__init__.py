"""Benchmarks: ours beside peers, in one run. `python3 run.py bench --help`."""
