"""Why is a task where it is? The facts that decided, one value per task.

Recorded only when asked for: a built-in assignor keeps what it compared, not prose. ``str(story)`` is the sentence.
"""

from __future__ import annotations

from dataclasses import dataclass

from streams_protocol.types import TaskId

__all__ = ["TaskStory"]


@dataclass(frozen=True, slots=True)
class TaskStory:
    """Facts about one task."""

    task: TaskId
