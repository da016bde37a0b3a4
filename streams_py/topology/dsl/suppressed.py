"""How long changes of a table are delayed (Kafka Streams' ``Suppressed``)."""

from __future__ import annotations

from dataclasses import dataclass

from streams_py.errors import TopologyError
from streams_py.topology.declare.checks import checked_function
from streams_py.topology.declare.durations import Duration, duration_ms
from streams_py.topology.logical.graph import GraphNode
from streams_py.topology.operators.suppress import SuppressionRule

__all__ = ["Suppressed"]


@dataclass(frozen=True, slots=True)
class Suppressed:
    """When ``KTable.suppress`` sends changes: :meth:`until_window_closes` or :meth:`until_time_limit`.

    ``max_records`` and ``max_bytes`` limit the buffer (None: no limit).
    """

    limit_ms: int | None
    """Time for which a change waits, in ms of stream time. None: until the window closes."""
    max_records: int | None
    """Maximum number of records in the buffer. None: no limit."""
    max_bytes: int | None
    """Maximum size of the buffer, in bytes. None: no limit."""
    emits_early: bool
    """Whether a full buffer sends its oldest changes. If not, a full buffer stops the task."""

    @classmethod
    @checked_function
    def until_window_closes(cls, *, max_records: int | None = None, max_bytes: int | None = None) -> Suppressed:
        """Send only the final result of each window.

        A buffer that exceeds its limits stops the task, because early results would not be final.
        """
        return cls(None, *_limits(max_records, max_bytes), emits_early=False)

    @classmethod
    @checked_function
    def until_time_limit(
        cls,
        limit: Duration,
        *,
        max_records: int | None = None,
        max_bytes: int | None = None,
        emit_early_when_full: bool = True,
    ) -> Suppressed:
        """Send the latest change of each key ``limit`` after the first one, by stream time.

        ``limit`` is a ``timedelta`` or milliseconds. A buffer that exceeds its limits sends its first entries early, or
        stops the task.
        """
        limit_ms = duration_ms(limit, "time limit of suppress")
        return cls(limit_ms, *_limits(max_records, max_bytes), emits_early=emit_early_when_full)

    def rule(self, above: GraphNode, name: str) -> SuppressionRule:
        """Return the rule of the operator ``name`` below ``above``.

        Raises:
            TopologyError: the rule waits for windows, but the table has none.
        """
        if self.limit_ms is not None:
            return SuppressionRule(self.limit_ms, False, self.max_records, self.max_bytes, self.emits_early)
        return SuppressionRule(_grace_of(above, name), True, self.max_records, self.max_bytes, self.emits_early)


def _limits(max_records: int | None, max_bytes: int | None) -> tuple[int | None, int | None]:
    for what, limit in (("max_records", max_records), ("max_bytes", max_bytes)):
        if limit is not None and limit < 0:
            raise TopologyError(f"{what} of suppress is {limit}; it must not be negative")
    return max_records, max_bytes


def _grace_of(above: GraphNode, name: str) -> int:
    """Return the grace period of the windows above, the longest one if there are several."""
    if above.grace_ms is not None:
        return above.grace_ms
    if not above.parents:
        raise TopologyError(
            f"{name!r} waits until windows close, but the table has no windows, or only UnlimitedWindows, which never "
            "close: use windowed_by() before it, or Suppressed.until_time_limit()"
        )
    return max(_grace_of(parent, name) for parent in above.parents)
