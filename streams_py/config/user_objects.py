"""Load objects of user modules that settings refer to."""

from __future__ import annotations

from importlib import import_module


def user_object(path: str) -> object:
    """Load an object that a setting refers to as ``package.module:name`` or ``package.module:Class.name``.

    Raises:
        ImportError: Loading failed, with the type and message of the original error. Importing runs user code, which
            may raise anything, including SystemExit.
    """
    module, _, names = path.partition(":")
    try:
        found: object = import_module(module)
        for name in names.split("."):
            found = getattr(found, name)
    except (Exception, SystemExit) as error:
        raise ImportError(f"{type(error).__name__}: {error}".rstrip(": ")) from error
    return found
