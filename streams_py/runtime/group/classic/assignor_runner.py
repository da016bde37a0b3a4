"""Runs the application's own task assignor under a time limit, and turns all of its failures into errors.

Importing the class, its constructor, ``configure``, ``assign``, reading the result, and ``on_assignment_computed`` are
user code. Each of them may raise anything (``sys.exit`` included), and each may never return. So they run on a separate
thread. Only an AssignorError, or the assignor's own TaskAssignmentError, reaches the caller.

A thread cannot be stopped from outside. A call that overruns is abandoned (its thread is a daemon) and its result is
ignored. No second call is started while the first one still runs, because threads would pile up. Decisions and
notifications have separate threads, so a hanging callback does not block assignments.
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

_NOTIFY_TIMEOUT_MS: Final = 5_000
"""Maximum time that a group waits for a callback whose result is not needed, in ms."""

T = TypeVar("T")


class AssignorRunner:
    """Runs the assignor of one leader. ``timeout_ms`` covers everything up to the answer."""

    def __init__(self, *, timeout_ms: int, notify_timeout_ms: int = _NOTIFY_TIMEOUT_MS) -> None:
        self._timeout_ms = timeout_ms
        self._notify_timeout_ms = min(timeout_ms, notify_timeout_ms)
        self._deciding = _Worker()
        self._notifying = _Worker()
        self.assignor: TaskAssignor | None = None
        """The instance of the last :meth:`ask`; None if it could not be created."""

    @property
    def is_stuck(self) -> bool:
        """Whether a call of an earlier :meth:`ask` still runs."""
        return self._deciding.is_stuck

    def ask(self, chosen: object, configs: Mapping[str, object], state: ApplicationState) -> TaskAssignment:
        """Create a new instance, configure it and run it. Return a copy of its answer.

        Raises:
            AssignorError: The assignor failed. The error names it.
            TaskAssignmentError: The assignor refused on purpose. The error names it.
        """
        self.assignor = None
        name = assignor_name(chosen)
        made: list[TaskAssignor] = []
        doing = ["being imported"]

        def steps() -> TaskAssignment:
            assignor_class = choose_assignor(chosen).task_assignor
            if assignor_class is None:
                raise AssignorError(f"{TASK_ASSIGNOR_CLASS}: {name} is not a task assignor class")
            doing.append("its constructor or configure")
            made.append(new_task_assignor(assignor_class, configs))
            doing.append("assign")
            return call_assignor(made[0], state)

        try:
            return self._deciding.run(steps, self._timeout_ms)
        except TaskAssignmentError as error:  # raised by the assignor itself: add its name
            raise TaskAssignmentError(f"task assignor {name} refused: {_message(error)}") from error
        except AssignorError:
            raise
        except _OverrunError as error:
            raise AssignorError(
                f"task assignor {name} did not return in time from {doing[-1]} ({error}); look for an endless loop or "
                "a blocking call"
            ) from None
        except BaseException as error:  # it was raised on the other thread, so it is not a Ctrl-C
            raise AssignorError(f"task assignor {name} failed in {doing[-1]} ({described(error)})") from error
        finally:
            self.assignor = made[0] if made else None

    def notify(self, notice: NotifyAssignor) -> None:
        """Call ``on_assignment_computed`` of the last instance. AssignorError if it fails or does not return."""
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
                "remains valid"
            ) from None
        except BaseException as error:
            raise AssignorError(
                f"task assignor {name} failed in on_assignment_computed ({described(error)}); its assignment "
                "remains valid"
            ) from error


def _message(error: TaskAssignmentError) -> str:
    try:
        return str(error)
    except Exception:
        return described(error)


class _OverrunError(Exception):  # internal to this module, which turns it into an AssignorError
    """A call that has not returned. The text has the waiting time."""


class _Worker:
    """Runs one call at a time on a separate thread, and abandons calls that overrun."""

    def __init__(self) -> None:
        self._stuck: threading.Thread | None = None

    @property
    def is_stuck(self) -> bool:
        """Whether an abandoned call still runs."""
        return self._stuck is not None and self._stuck.is_alive()

    def run(self, action: Callable[[], T], timeout_ms: int) -> T:
        """Return or raise the result of ``action``, SystemExit included. _OverrunError if it takes too long."""
        if self.is_stuck:
            raise _OverrunError("an earlier call has not returned yet; restart this process to stop it")
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
    """A call on another thread, and its result."""

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
        """Return the result of the call, or raise its error."""
        if self._raised is not None:
            raise self._raised
        return self._returned[0]
