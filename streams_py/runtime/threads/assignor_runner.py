"""Runs the application's own task assignor: under a time limit, with a net under every line of it.

Importing the class, its constructor, ``configure``, ``assign``, reading what that returned, and
``on_assignment_computed`` are all user code: each may raise anything (``sys.exit`` included) and each may never return.
So they run on a thread of their own, and nothing but an AssignorError, or the assignor's own TaskAssignmentError, comes
out of it.

A thread cannot be stopped from outside. One that overruns is left behind (it is a daemon), its result is ignored, and
as long as it is there no second one is started: they would pile up. What hears the result is told apart from what
decides: a callback that hangs keeps nobody from assigning.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeVar

from streams_py.assignment.api import ApplicationState, TaskAssignment, TaskAssignor
from streams_py.assignment.assignors.answer import described
from streams_py.assignment.assignors.registry import (
    TASK_ASSIGNOR_CLASS,
    assignor_name,
    call_assignor,
    choose_assignor,
    new_task_assignor,
)
from streams_py.errors import AssignorError, TaskAssignmentError
from streams_py.leader.effects import NotifyAssignor

__all__ = ["AssignorRunner"]

_NOTIFY_TIMEOUT_MS: Final = 5_000
"""How long a group waits, at most, for a callback whose result nobody needs."""

T = TypeVar("T")


class AssignorRunner:
    """One leader's way to its assignor. ``timeout_ms`` is for everything up to the answer together."""

    def __init__(self, *, timeout_ms: int, notify_timeout_ms: int = _NOTIFY_TIMEOUT_MS) -> None:
        self._timeout_ms = timeout_ms
        self._notify_timeout_ms = min(timeout_ms, notify_timeout_ms)
        self._deciding = _Worker()
        self._notifying = _Worker()
        self.assignor: TaskAssignor | None = None
        """The instance of the last :meth:`ask`; None when it could not be made."""

    @property
    def is_stuck(self) -> bool:
        """Whether the assignor has not returned from an earlier :meth:`ask`."""
        return self._deciding.is_stuck

    def ask(self, chosen: object, configs: Mapping[str, object], state: ApplicationState) -> TaskAssignment:
        """Make a new instance, configure it, run it; a copy of its answer.

        AssignorError, or TaskAssignmentError when the assignor refuses on purpose; both name it.
        """
        self.assignor = None
        name = assignor_name(chosen)
        made: list[TaskAssignor] = []
        doing = ["being imported"]

        def steps() -> TaskAssignment:
            assignor_class = choose_assignor(chosen).task_assignor
            if assignor_class is None:
                raise AssignorError(f"{TASK_ASSIGNOR_CLASS}: {name} is no assignor of the application")
            doing.append("its constructor or configure")
            made.append(new_task_assignor(assignor_class, configs))
            doing.append("assign")
            return call_assignor(made[0], state)

        try:
            return self._deciding.run(steps, self._timeout_ms)
        except TaskAssignmentError as error:  # raised by the assignor itself: its words, and whose they are
            raise TaskAssignmentError(f"task assignor {name} refused: {_words(error)}") from error
        except AssignorError:
            raise
        except _OverrunError as error:
            raise AssignorError(
                f"task assignor {name} did not return in time from {doing[-1]} ({error}); look for an endless loop, or "
                "for a call that waits"
            ) from None
        except BaseException as error:  # from another thread: not the Ctrl-C of this one
            raise AssignorError(f"task assignor {name} failed in {doing[-1]} ({described(error)})") from error
        finally:
            self.assignor = made[0] if made else None

    def notify(self, notice: NotifyAssignor) -> None:
        """Call ``on_assignment_computed`` of the last instance. AssignorError when it fails, or does not return."""
        assignor = self.assignor
        if assignor is None:
            return
        name = assignor_name(assignor)
        try:
            self._notifying.run(
                lambda: assignor.on_assignment_computed(notice.assignment, notice.subscription, notice.error),
                self._notify_timeout_ms,
            )
        except _OverrunError as error:
            raise AssignorError(
                f"task assignor {name} did not return in time from on_assignment_computed ({error}); its assignment "
                "counts all the same"
            ) from None
        except BaseException as error:
            raise AssignorError(
                f"task assignor {name} failed in on_assignment_computed ({described(error)}); its assignment counts "
                "all the same"
            ) from error


def _words(error: TaskAssignmentError) -> str:
    try:
        return str(error)
    except Exception:
        return described(error)


class _OverrunError(Exception):  # never leaves this module: becomes an AssignorError
    """A call that has not returned; the text says how long it was waited for."""


class _Worker:
    """Runs one call at a time on a thread of its own, and leaves behind what overruns."""

    def __init__(self) -> None:
        self._stuck: threading.Thread | None = None

    @property
    def is_stuck(self) -> bool:
        """Whether a call was left behind and still runs."""
        return self._stuck is not None and self._stuck.is_alive()

    def run(self, action: Callable[[], T], timeout_ms: int) -> T:
        """What ``action`` returns or raises, SystemExit and its like included; _OverrunError when it takes too long."""
        if self.is_stuck:
            raise _OverrunError("an earlier call has not returned yet; restart this process to end it")
        self._stuck = None
        call = _Call(action)
        thread = threading.Thread(target=call.run, name="task-assignor", daemon=True)
        thread.start()
        thread.join(timeout_ms / 1000)
        if thread.is_alive():
            self._stuck = thread
            raise _OverrunError(f"waited {timeout_ms} ms")
        return call.result()


class _Call(Generic[T]):
    """Something to run on another thread, and what came of it."""

    def __init__(self, action: Callable[[], T]) -> None:
        self._action = action
        self._returned: list[T] = []
        self._raised: BaseException | None = None

    def run(self) -> None:
        try:
            self._returned.append(self._action())
        except BaseException as error:
            self._raised = error

    def result(self) -> T:
        """What it returned, or what it raised, raised here."""
        if self._raised is not None:
            raise self._raised
        return self._returned[0]
