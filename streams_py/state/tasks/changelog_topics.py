"""Whether a task's positions are still positions in its changelogs: a topic that is deleted and created anew has the
same name and begins at offset 0 again, so a position of before points into it, or beyond its end.

The cluster says it when a store is about to be restored: the topic has another id (KIP-516). While a task runs nobody
asks; then the offsets that its writes get say it.

Ids are kept where the positions are: in the task's database, and for stores of the user's own, which keep their
positions themselves, in a file each.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from streams_protocol.types import TaskId, TopicPartition
from streams_py.system.private_files import FOLDER_MODE, replace_file

if TYPE_CHECKING:
    from streams_py.state.disk.database import TaskDatabase

__all__ = ["ChangelogTopics"]

_logger = logging.getLogger(__name__)

_INCOMPLETE = (
    "Store {store} is complete here, but wherever it is restored it has only what is written from now on: reset the "
    "application (streams-py reset), or have all of its keys written again"
)


class ChangelogTopics:
    """What one task knows of the topics that its positions are in."""

    def __init__(self, task_id: TaskId) -> None:
        self._task_id = task_id
        self._database: TaskDatabase | None = None
        self._files: Mapping[str, str] = {}
        self._ids: dict[str, str] = {}
        self._acked: dict[TopicPartition, int] = {}
        self._ambiguous: dict[TopicPartition, int] = {}

    def use(self, database: TaskDatabase | None, files: Mapping[str, str] = MappingProxyType({})) -> None:
        """The task was opened, and these know the ids: the database, if there is one, and for some topics a file; or it
        is closed."""
        self._database = database
        self._files = files
        self._ids = {} if database is None else database.topic_ids()
        for topic, path in files.items():
            with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8") as file:
                self._ids[topic] = file.read()
        self._acked, self._ambiguous = {}, {}

    def change_writer(self) -> None:
        """Somebody else writes from now on, or nobody: what was acknowledged before says nothing of what comes."""
        self._acked.clear()

    def forget(self, changelog: TopicPartition) -> None:
        """Its position is given up, and forgotten on disk with what is known of its topic."""
        self._ids.pop(changelog.topic, None)
        if changelog.topic in self._files:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._files[changelog.topic])

    def _note_file(self, topic: str, topic_id: str) -> None:
        path = self._files[topic]
        try:
            os.makedirs(os.path.dirname(path), mode=FOLDER_MODE, exist_ok=True)
            replace_file(path, topic_id.encode())
        except OSError as error:
            _logger.warning(
                "task %s: cannot note the id of topic %s, so nobody notices if it is deleted and created anew: %s",
                self._task_id,
                topic,
                error,
            )

    def is_of(
        self, changelog: TopicPartition, topic_id: str, *, store: str, position_known: bool, on_disk: bool
    ) -> bool:
        """False when the position is in a topic with another id than this one."""
        topic, known = changelog.topic, self._ids.get(changelog.topic)
        if known == topic_id:
            return True
        if known is not None and position_known:
            _logger.warning(
                "task %s: topic %s was deleted and created anew since store %s was filled from it (its id was %s and "
                "is %s): the store is emptied and restored from what the topic has now",
                self._task_id,
                topic,
                store,
                known,
                topic_id,
            )
            return False
        self._ids[topic] = topic_id
        if on_disk and self._database is not None:  # before any position in it
            self._database.note_topic_ids({topic: topic_id})
        elif topic in self._files:
            self._note_file(topic, topic_id)
        return True

    def replaced(self, changelog: TopicPartition, topic_id: str, acked: int | None, *, store: str) -> bool:
        """The cluster reports this id while the task runs. True when the changelog was deleted and created again: from
        now on the position of the store is a position in the new topic.

        ``acked``: offset of the last acknowledged write, in the old topic or in the new one.
        """
        topic, known = changelog.topic, self._ids.get(changelog.topic)
        if known is None or known == topic_id:
            return False
        _logger.error(
            "task %s: changelog %s was deleted and created again while the task runs (its id was %s and is %s). %s",
            self._task_id,
            changelog,
            known,
            topic_id,
            _INCOMPLETE.format(store=store),
        )
        self._ids[topic] = topic_id
        if acked is not None:
            self._acked[changelog] = acked
            self._ambiguous[changelog] = acked
        if topic in self._files:
            self._note_file(topic, topic_id)
        return True

    def is_ambiguous(self, changelog: TopicPartition, acked: int) -> bool:
        """Whether an acknowledged offset may be one in a topic that was :meth:`replaced`."""
        if self._ambiguous.get(changelog) == acked:
            return True
        self._ambiguous.pop(changelog, None)
        return False

    def begins_anew(self, changelog: TopicPartition, position: int, acked: int, *, store: str) -> bool:
        """Its last write got the offset ``acked``: True when that says that the log has begun anew under the task;
        then the position is one in whatever topic has the name now.

        One offset below the position does not: it may be what this thread wrote before the task went away and came
        back. Another one after that does."""
        before = self._acked.get(changelog)
        self._acked[changelog] = acked
        if acked >= position or before is None or acked == before:
            return False
        _logger.error(
            "task %s: changelog %s goes on at offset %d, and was at %d: it was deleted and created anew, or has lost "
            "its end. %s",
            self._task_id,
            changelog,
            acked,
            position,
            _INCOMPLETE.format(store=store),
        )
        self.forget(changelog)
        if self._database is not None:
            self._database.forget_topic_id(changelog.topic)
        return True
