"""Global tables over a history. They are filled completely before the first record, and do not change afterwards.

In a live application, a global table is updated independently of the tasks. Which updates were visible to a record is
not recorded, so a history cannot reproduce it. If the user allows it (``as-of-end``), every record sees the table as it
is at the end. A live application that starts at the end has the same table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from streams_protocol.types import TopicPartition
from streams_py.errors import ConfigError
from streams_py.history.folders import TemporaryFolder
from streams_py.ports import RawRecord
from streams_py.runtime.global_thread.progress import GLOBAL_TASK
from streams_py.runtime.tasks.record.binding import Node
from streams_py.runtime.tasks.record.source_replay import source_replays
from streams_py.runtime.tasks.settings.task_settings import TaskSettings
from streams_py.state.directory.state_directory import StateDirectory
from streams_py.state.opening.stores import StoreDefaults
from streams_py.state.reading.write_protected import write_protected
from streams_py.state.tasks.global_stores import GlobalStores
from streams_py.topology.operators.processors import ProcessorOperator
from streams_py.topology.operators.stream_joins import GlobalTableJoin
from streams_py.topology.operators.table_transforms import TableTransformValues
from streams_py.topology.physical.assembly import GlobalStore
from streams_py.topology.physical.subtopologies import Subtopology

AS_OF_END: Final = "as-of-end"

TableContents: TypeAlias = "Mapping[str, Callable[[], Iterable[Sequence[RawRecord]]]]"
"""Topic -> function that returns its records in batches. It is called once for each store that is filled."""


def check_global_tables(given: str | None) -> bool:
    """Whether global tables are allowed. Raises ConfigError for a value other than None and ``as-of-end``."""
    if given not in (None, AS_OF_END):
        raise ConfigError(
            f"global tables {given!r}: the only supported value is {AS_OF_END} (their contents at the end)",
            key="--global-tables",
        )
    return given is not None


def reads_global_tables(nodes: Subtopology) -> bool:
    """Whether a node joins with a global table, or is a processor, which may read any global table."""
    return any(
        isinstance(node.operator, GlobalTableJoin | ProcessorOperator | TableTransformValues)
        for node in nodes.processors
    )


class FrozenTables:
    """The global stores of a topology, filled from ``contents``. ``stores`` has them, by name and write-protected."""

    def __init__(
        self,
        declared: Mapping[str, tuple[GlobalStore, str]],
        nodes: Sequence[Node],
        settings: TaskSettings,
        contents: TableContents,
        folder: str | None = None,
    ) -> None:
        """Open the stores and fill them.

        Args:
            declared: store -> declaration and topic.
            nodes: the nodes that fill global stores.
            settings: settings of the tasks.
            contents: the records of the topics.
            folder: folder for files; default: the system's folder for temporary files.
        """
        self._folder = TemporaryFolder(folder)
        self._directory = StateDirectory(str(self._folder.path), settings.application_id, warns_of_temporary=False)
        defaults = StoreDefaults(settings.default_key_serde, settings.default_value_serde, persistent=True)
        self._stores = GlobalStores(
            declared, application_id=settings.application_id, directory=self._directory, defaults=defaults
        )
        try:
            self._directory.open()
            self._stores.open()
            tables = {topic: store.builder for store, topic in declared.values()}
            replays = source_replays(GLOBAL_TASK, nodes, tables, settings)
            for topic, records_of in contents.items():
                for records in filter(None, records_of()):
                    self._stores.restore(TopicPartition(topic, 0), replays[topic].replayed(records))
            self._stores.commit()
        except BaseException:
            self.close()
            raise
        self.stores: Mapping[str, Any] = {name: write_protected(store) for name, store in self._stores.stores.items()}

    def close(self) -> None:
        """Close the stores and remove their files. A second call does nothing."""
        self._stores.close()
        self._directory.close()
        self._folder.remove()
