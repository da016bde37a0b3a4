"""What a setting names in a user's own modules."""

from __future__ import annotations

from importlib import import_module

__all__ = ["user_object"]


def user_object(path: str) -> object:
    """What ``package.module:name`` names, or ``package.module:Class.name``. ImportError, with the kind of what was
    raised and its text: importing runs the user's code, which may do anything, and exit."""
    module, _, names = path.partition(":")
    try:
        found: object = import_module(module)
        for name in names.split("."):
            found = getattr(found, name)
    except (Exception, SystemExit) as error:
        raise ImportError(f"{type(error).__name__}: {error}".rstrip(": ")) from error
    return found
