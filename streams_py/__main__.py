"""``python -m streams_py``: the command ``streams-py``."""

from streams_py.cli.main import main

main()
