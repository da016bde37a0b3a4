"""Checks of the arguments of ``KafkaStreams``, before anything is opened."""

from __future__ import annotations

from collections.abc import Sequence

from streams_py.errors import TopologyError
from streams_py.topology.declare.caller import locate, user_line
from streams_py.topology.declare.checks import check_function
from streams_py.topology.topology import Topology

_RESTORE_CALLS = ("on_restore_start", "on_batch_restored", "on_restore_end", "on_restore_suspended")
_STANDBY_CALLS = ("on_update_start", "on_batch_loaded", "on_update_suspended")


def check_arguments(
    topology: object, on_state: object, on_error: object, restore_listener: object, standby_listener: object
) -> None:
    """Check the topology and the callbacks.

    Raises:
        TopologyError: ``topology`` is not a Topology, or a callback cannot be called. Names the caller's line.
    """
    try:
        if not isinstance(topology, Topology):
            hint = "; pass builder.build()" if hasattr(topology, "build") else ""
            raise TopologyError(f"KafkaStreams takes a Topology, not a {type(topology).__name__}{hint}")
        if on_state is not None:
            check_function(on_state, "KafkaStreams: on_state", ("new state", "old state"))
        if on_error is not None:
            check_function(on_error, "KafkaStreams: on_error", ("error",))
        _check_listener(restore_listener, "restore_listener", "RestoreListener", _RESTORE_CALLS)
        _check_listener(standby_listener, "standby_listener", "StandbyUpdateListener", _STANDBY_CALLS)
    except TopologyError as error:
        locate(error, user_line())
        raise


def check_timeout(seconds: float | None) -> None:
    """Raise ValueError for a negative timeout."""
    if seconds is not None and seconds < 0:
        raise ValueError(f"timeout must not be negative: {seconds}")


def _check_listener(given: object, what: str, kind: str, calls: Sequence[str]) -> None:
    missing = [call for call in calls if not callable(getattr(given, call, None))]
    if given is not None and missing:
        raise TopologyError(
            f"KafkaStreams: {what} is of type {type(given).__name__}, without {missing[0]}; pass a subclass of {kind}"
        )
