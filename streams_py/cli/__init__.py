"""The ``streams-py`` command. Needs the extra ``cli`` (typer and rich)."""
