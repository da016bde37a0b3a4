"""Makes a started client unusable in forked child processes: its threads do not exist there, so every call raises."""

from __future__ import annotations

import os
from typing import Any, Final

from streams_py.errors import IllegalStateError
from streams_py.system.forks import keep_undestroyed, when_forked

_MARK: Final = "_is_left_behind"
_SILENT: Final = {"__del__", "__exit__", "__init__", "__new__", "__init_subclass__", "__class_getitem__"}


def refuse_when_forked(client: object) -> None:
    """Make all calls of ``client`` raise IllegalStateError in processes that are forked from now on."""
    when_forked(client, _leave_behind)


def is_left_behind(client: object) -> bool:
    """Whether this process was forked from the process that started ``client``."""
    return _MARK in vars(type(client))


def _leave_behind(client: Any) -> None:
    if not client.state.is_final:  # a closed client is harmless
        keep_undestroyed(client)
        kind: type = type(client)
        client.__class__ = _refusing(kind, os.getppid())


def _refusing(kind: type, parent: int) -> type:
    def refuse(self: object, *_: object, **__: object) -> object:
        raise IllegalStateError(
            f"this {kind.__name__} was started by process {parent}; its threads do not exist in this forked process: "
            f"create and start a new {kind.__name__} here"
        )

    names = {name for base in kind.__mro__ if base is not object for name in vars(base)}
    special = {name for name in names if name.startswith("__") and callable(getattr(kind, name, None))} - _SILENT
    return type(
        kind.__name__,
        (kind,),
        {
            "__slots__": (),
            "__doc__": kind.__doc__,
            **dict.fromkeys(special - {"__class__", "__doc__"}, refuse),
            "__getattribute__": refuse,
            _MARK: True,
        },
    )
