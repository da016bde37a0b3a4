"""Detect changelog topics that were deleted and created again, so that a task's positions refer to a deleted topic.

The new topic has the same name and starts at offset 0. So an old position points somewhere into it, or beyond its end.
There are two ways to detect this:

* Before a store is restored, the cluster reports the id of the topic, which has changed (KIP-516).
* While a task runs, its writes get offsets below its position.

Ids are stored with the positions: in the task's database, or in a file each for custom stores, which store their
positions themselves.
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

_logger = logging.getLogger(__name__)

_INCOMPLETE = (
    "Store {store} is complete on this instance, but a restore would only get records written from now on: reset the "
    "application (streams-py reset), or write all of its keys again"
)


class ChangelogTopics:
    """The ids of the topics that one task's positions refer to."""

    def __init__(self, task_id: TaskId) -> None:
        self._task_id = task_id
        self._database: TaskDatabase | None = None
        self._files: Mapping[str, str] = {}
        self._ids: dict[str, str] = {}
        self._acked: dict[TopicPartition, int] = {}
        self._ambiguous: dict[TopicPartition, int] = {}

    def use(self, database: TaskDatabase | None, files: Mapping[str, str] = MappingProxyType({})) -> None:
        """Load the ids when the task is opened, or drop them when it is closed.

        Args:
            database: The task's database. None: the task has none, or was closed.
            files: Topic -> file with its id, for the changelogs of custom stores.
        """
        self._database = database
        self._files = files
        self._ids = {} if database is None else database.topic_ids()
        for topic, path in files.items():
            with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8") as file:
                self._ids[topic] = file.read()
        self._acked, self._ambiguous = {}, {}

    def change_writer(self) -> None:
        """Drop the acknowledged offsets, because another producer writes from now on, or none."""
        self._acked.clear()

    def forget(self, changelog: TopicPartition) -> None:
        """Drop the id of a changelog whose position is discarded."""
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
                "task %s: cannot store the id of topic %s: %s. If the topic is deleted and created again, this is not "
                "detected",
                self._task_id,
                topic,
                error,
            )

    def is_of(
        self, changelog: TopicPartition, topic_id: str, *, store: str, position_known: bool, on_disk: bool
    ) -> bool:
        """Return False if the position refers to another topic than the one with this id. Stores a new id."""
        topic, known = changelog.topic, self._ids.get(changelog.topic)
        if known == topic_id:
            return True
        if known is not None and position_known:
            _logger.warning(
                "task %s: topic %s was deleted and created again since store %s was restored from it (its id was %s "
                "and is %s): emptying the store and restoring it from the new topic",
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
        """Compare the id that the cluster reports while the task runs.

        Args:
            changelog: The changelog partition.
            topic_id: The reported id.
            acked: Offset of the last acknowledged write, in the old topic or in the new one.
            store: Name of the store.

        Returns:
            True if the changelog was deleted and created again. From now on the position refers to the new topic.
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
        """Whether an acknowledged offset may refer to a topic that was :meth:`replaced`."""
        if self._ambiguous.get(changelog) == acked:
            return True
        self._ambiguous.pop(changelog, None)
        return False

    def was_recreated(self, changelog: TopicPartition, position: int, acked: int, *, store: str) -> bool:
        """Whether the offset of an acknowledged write shows that the changelog was recreated while the task runs.

        If so, the position refers to the current topic from now on. A single offset below the position proves nothing:
        this thread may have written it before the task moved away and came back. A different second one does.

        Args:
            changelog: The changelog partition.
            position: The position of the store.
            acked: Offset of the last acknowledged write.
            store: Name of the store.
        """
        before = self._acked.get(changelog)
        self._acked[changelog] = acked
        if acked >= position or before is None or acked == before:
            return False
        _logger.error(
            "task %s: changelog %s continues at offset %d, but was already at %d: it was deleted and created again, or "
            "lost its end. %s",
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
