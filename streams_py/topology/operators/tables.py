"""Table operators: sources, filter, map_values, group_by, and conversion to a stream.

**Old values.** A table sends :class:`Change` pairs. Their old half costs a store read or a second call of the user's
function, so it is only set if a later operation subtracts or compares ("old-values mode"). The request for old values
travels from child to parent while the DSL is used, before anything is bound. A table with a store reads them from the
store, and a table without a store requests them from its parent. A source table without a store gets one (and so a
changelog topic), unless that is not wanted. This is ``KTableImpl.enableSendingOldValues`` of Kafka Streams. It affects
which topics exist.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from streams_py.errors import ProcessingError
from streams_py.topology.declare.in_context import at_its_time, within
from streams_py.topology.declare.nodes import Change, LateChange, NodeContext, Process
from streams_py.topology.operators.stateless import named_if_no_pair
from streams_py.topology.operators.versioned import VersionedTable

_NULL_KEY = "null key in a table"
_LATE = "older than the row of a versioned table"

DataReader: TypeAlias = Callable[[Any], "bytes | None"]
"""read(key) -> the serialized value of a table's row, as stored."""

RowReader: TypeAlias = Callable[[Any], "tuple[Any, int] | None"]
"""read(key) -> value and timestamp_ms of a table's row, or None."""

PastRowReader: TypeAlias = Callable[[Any, int], "tuple[Any, int] | None"]
"""read(key, timestamp_ms) -> value and timestamp_ms of a table's row at that time, or None."""

make_change: Callable[[tuple[Any, Any]], Change] = partial(tuple.__new__, Change)
"""``make_change((new, old))``: same as ``Change(new, old)`` in half the time, for the record path."""

_TWO_RECORDS_UNTIL = (3, 4)
"""Last Kafka Streams release that cannot read a change with both halves in one record (KIP-904)."""


class TableOperator(ABC):
    """An operator whose result is a table. ``store_name`` is "" if the table is not stored."""

    replayable: bool
    """Each subclass says it; see :class:`~streams_py.topology.declare.nodes.Operator`."""

    def __init__(self, store_name: str) -> None:
        self.store_name = store_name
        self.sends_old_values = False
        self.store_history_ms: int | None = None
        """History of its own store, in ms; None without a versioned store."""
        self.shares_store = False
        """Whether other operators write to its store, too."""

    def history_ms(self) -> int | None:
        """Return the history that :meth:`past_reader` can read, in ms; None without a history."""
        return self.store_history_ms

    def is_versioned(self) -> bool:
        """Whether it may send late updates."""
        return self.store_history_ms is not None

    def past_reader(self, node: NodeContext) -> PastRowReader:
        """Return a reader of earlier versions of rows, for a table with a history."""
        return VersionedTable(node.store(self.store_name), node.dropped).get_as_of

    def store_of(self, node: NodeContext) -> Any:
        """Return its store with the interface of a timestamped store."""
        store = node.store(self.store_name)
        return store if self.store_history_ms is None else VersionedTable(store, node.dropped)

    def enable_old_values(self, *, force: bool) -> bool:
        """Send old values from now on.

        Returns False if that requires a new store, which ``force`` does not allow.
        """
        self.sends_old_values = True
        return True

    def readable_stores(self) -> tuple[str, ...]:
        """Return the names of the stores with the rows; a source table is stored from now on."""
        return (self.store_name,)

    def reader(self, node: NodeContext) -> RowReader:
        """Return a reader of current rows for ``node``, which is connected to :meth:`readable_stores`."""
        read: RowReader = self.store_of(node).get
        return read

    def data_reader(self, node: NodeContext) -> DataReader | None:
        """Return a reader of the bytes of rows; None if the rows of :meth:`reader` are not stored."""
        if not self.store_name:
            return None
        read: DataReader = node.store(self.store_name).value_data
        return read

    @abstractmethod
    def bind(self, node: NodeContext) -> Process:
        """As in ``Operator``."""


class TableSource(TableOperator):
    """Converts records to a table: the latest value of each key, where None deletes.

    ``store_name`` is the name of the store if the table is stored.
    """

    replayable = True

    def __init__(self, store_name: str, *, is_stored: bool) -> None:
        super().__init__(store_name)
        self.is_stored = is_stored

    def enable_old_values(self, *, force: bool) -> bool:
        if not self.is_stored and not force:
            return False
        self.is_stored = True
        return super().enable_old_values(force=force)

    def readable_stores(self) -> tuple[str, ...]:
        self.is_stored = True
        return super().readable_stores()

    def bind(self, node: NodeContext) -> Process:
        return self._bind_stored(node) if self.is_stored else self._bind_plain(node)

    def _bind_plain(self, node: NodeContext) -> Process:
        forward = node.forward

        def process(key: Any, value: Any, timestamp_ms: int) -> None:
            if key is None:
                node.dropped(_NULL_KEY)
                return
            forward(key, make_change((value, None)), timestamp_ms)

        return process

    def _bind_stored(self, node: NodeContext) -> Process:
        store, forward, failed, context = self.store_of(node), node.forward, node.failed, node.record
        forwards = forward_flushed(node, store, send_old_values=self.sends_old_values)
        reads_old = self.sends_old_values and forwards
        get, put, meet = store.get, store.put_value, getattr(store, "meet", None)

        def process(key: Any, value: Any, timestamp_ms: int) -> None:
            if key is None:
                node.dropped(_NULL_KEY)
                return
            context.timestamp = timestamp_ms
            old = None
            try:
                if reads_old:
                    stored = get(key)
                    if stored is not None:
                        old = stored[0]
                elif meet is not None:
                    meet(key)
                put(key, value, timestamp_ms)
            except Exception as error:
                failed(error, key, value, timestamp_ms)
                return
            if forwards:
                forward(key, make_change((value, old)), timestamp_ms)

        return process


class TableTransformation(TableOperator):
    """Base class of filter and map_values. Without a store, they read the parent's rows."""

    def __init__(self, parent: TableOperator, store_name: str) -> None:
        super().__init__(store_name)
        self._parent = parent

    def enable_old_values(self, *, force: bool) -> bool:
        if self.store_name or self._parent.enable_old_values(force=force):
            self.sends_old_values = True
        return self.sends_old_values

    def history_ms(self) -> int | None:
        return super().history_ms() if self.store_name else self._parent.history_ms()

    def is_versioned(self) -> bool:
        return super().is_versioned() if self.store_name else self._parent.is_versioned()

    def readable_stores(self) -> tuple[str, ...]:
        return super().readable_stores() if self.store_name else self._parent.readable_stores()

    def past_reader(self, node: NodeContext) -> PastRowReader:
        if self.store_name:
            return super().past_reader(node)
        compute, read_parent = self._row_function(node), self._parent.past_reader(node)

        def read(key: Any, timestamp_ms: int) -> tuple[Any, int] | None:
            row = read_parent(key, timestamp_ms)
            if row is None:
                return None
            value = compute(key, row[0])
            return None if value is None else (value, row[1])

        return read

    def reader(self, node: NodeContext) -> RowReader:
        if self.store_name:
            return super().reader(node)
        compute, read_parent = self._row_function(node), self._parent.reader(node)

        def read(key: Any) -> tuple[Any, int] | None:
            row = read_parent(key)
            if row is None:
                return None
            value = compute(key, row[0])
            return None if value is None else (value, row[1])

        return read

    @abstractmethod
    def _row_function(self, node: NodeContext) -> Callable[[Any, Any], Any]:
        """Return a function that computes a row's value from the parent's row, or None."""

    def _bind(self, node: NodeContext, compute: Callable[[Any, Any], Any], *, skip_nulls: bool) -> Process:
        forward, failed, context = node.forward, node.failed, node.record
        old_values = self.sends_old_values
        of_versions = self._parent.is_versioned()
        skip_nulls = skip_nulls and old_values and not of_versions
        store = self.store_of(node) if self.store_name else None
        forwards = True if store is None else forward_flushed(node, store, send_old_values=old_values)

        def process(key: Any, change: Any, timestamp_ms: int) -> None:
            new_input, old_input = change
            context.timestamp = timestamp_ms
            old = None
            try:
                new = compute(key, new_input)
                if old_values:
                    if store is None:
                        old = compute(key, old_input)
                    else:
                        stored = store.get(key)
                        old = None if stored is None else stored[0]
                    if skip_nulls and new is None and old is None:
                        return
                if store is not None:
                    store.put_value(key, new, timestamp_ms)
            except Exception as error:
                failed(error, key, change, timestamp_ms)
                return
            if forwards:
                is_late = of_versions and not change.is_latest
                forward(key, LateChange(new, old) if is_late else make_change((new, old)), timestamp_ms)

        return process


class TableFilter(TableTransformation):
    """Rows for which the predicate is false become deletions.

    It requests old values if they cost nothing. Then deletions of rows that never passed are not sent.
    """

    replayable = True

    def __init__(
        self, parent: TableOperator, predicate: Callable[[Any, Any], object], store: str, *, negate: bool
    ) -> None:
        super().__init__(parent, store)
        self._predicate = predicate
        self._negate = negate
        self.sends_old_values = parent.enable_old_values(force=False)

    def _row_function(self, node: NodeContext) -> Callable[[Any, Any], Any]:
        predicate, negate = within(node, self._predicate), self._negate

        def compute(key: Any, value: Any) -> Any:
            return None if value is None or bool(predicate(key, value)) is negate else value

        return compute

    def data_reader(self, node: NodeContext) -> DataReader | None:
        # Without a store the rows are unchanged rows of the parent.
        return super().data_reader(node) if self.store_name else self._parent.data_reader(node)

    def bind(self, node: NodeContext) -> Process:
        return self._bind(node, self._row_function(node), skip_nulls=True)


class TableMapValues(TableTransformation):
    """Replaces the values of rows; deletions stay deletions. ``mapper`` is called with key and value."""

    replayable = True

    def __init__(self, parent: TableOperator, mapper: Callable[[Any, Any], Any], store: str) -> None:
        super().__init__(parent, store)
        self._mapper = mapper

    def _row_function(self, node: NodeContext) -> Callable[[Any, Any], Any]:
        mapper = within(node, self._mapper)

        def compute(key: Any, value: Any) -> Any:
            return None if value is None else mapper(key, value)

        return compute

    def bind(self, node: NodeContext) -> Process:
        return self._bind(node, self._row_function(node), skip_nulls=False)


class TableToStream:
    """Sends a table's updates as records; deletions become null values."""

    replayable = True

    def bind(self, node: NodeContext) -> Process:
        forward = node.forward

        def process(key: Any, change: Any, timestamp_ms: int) -> None:
            forward(key, change[0], timestamp_ms)

        return process


class TableGroupBy:
    """Sends each change of a row to its old and new group (Kafka Streams' ``KTableRepartitionMap``).

    If the group stays the same, it sends one record with both halves. Otherwise it sends first the subtraction, then
    the addition. A group or value of None is not sent.
    """

    replayable = True

    def __init__(self, table: TableOperator, selector: Callable[[Any, Any], tuple[Any, Any]]) -> None:
        self._table = table
        self._selector = selector

    def bind(self, node: NodeContext) -> Process:
        selector, forward, failed = within(node, self._selector), node.forward, node.failed
        one_record = not upgrades_from(node, _TWO_RECORDS_UNTIL)

        def select(key: Any, value: Any) -> tuple[Any, Any] | None:
            if value is None:
                return None
            group, selected = selector(key, value)
            return None if group is None or selected is None else (group, selected)

        def process(key: Any, change: Any, timestamp_ms: int) -> None:
            try:
                if key is None:
                    raise ProcessingError(f"node {node.name!r} received a change of a table without a key")
                new, old = select(key, change[0]), select(key, change[1])
            except Exception as error:
                failed(named_if_no_pair(error, selector, "group_by"), key, change, timestamp_ms)
                return
            if one_record and old is not None and new is not None and old[0] == new[0]:
                forward(new[0], Change(new[1], old[1]), timestamp_ms)
                return
            if old is not None:
                forward(old[0], Change(None, old[1]), timestamp_ms)
            if new is not None:
                forward(new[0], Change(new[1], None), timestamp_ms)

        return latest_only(self._table, at_its_time(node, process, self._selector))


def forward_flushed(node: NodeContext, store: Any, *, send_old_values: bool) -> bool:
    """Return whether the operator forwards a store's updates; otherwise the record cache does.

    In the latter case this function tells the cache how to forward.
    """
    if not store.is_cached:
        return True
    forward = node.forward
    if isinstance(store, VersionedTable):
        store.forward_to(forward, send_old_values=send_old_values)
        return False

    def flushed(key: Any, new: Any, old: Any, timestamp_ms: int) -> None:
        forward(key, make_change((new, old)), timestamp_ms)

    store.set_flush_listener(flushed, send_old_values=send_old_values)
    return False


def latest_only(table: TableOperator, process: Process, drop: Callable[[str], None] | None = None) -> Process:
    """Return ``process`` without late updates of a versioned table.

    Aggregations and joins only use the current rows. ``drop`` is called for each late update.
    """
    if not table.is_versioned():
        return process

    def process_latest(key: Any, change: Any, timestamp_ms: int) -> None:
        if change.is_latest:
            process(key, change, timestamp_ms)
        elif drop is not None:
            drop(_LATE)

    return process_latest


def upgrades_from(node: NodeContext, newest: tuple[int, int]) -> bool:
    """Whether the group may have members of the release ``newest`` or older (``upgrade.from``)."""
    release = node.upgrade_from
    if not release:
        return False
    major, minor, *_ = (*(int(part) for part in release.split(".")), 0)
    return (major, minor) <= newest
