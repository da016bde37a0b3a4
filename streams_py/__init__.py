"""Kafka Streams for Python, byte-compatible with Apache Kafka Streams, with the assignor in your hands.

    from streams_py import KafkaStreams, StreamsBuilder, serdes

Everything public is here, except for ``streams_py.serdes``, ``streams_py.assignment`` (your own task assignor, KIP-924)
and ``streams_py.testing`` (the test kit), which are public modules.

Names are loaded when they are first used (PEP 562), so that importing this package costs nothing: a program that only
describes a topology loads no Kafka client. ``_HOME`` says where a name lives; type checkers read the imports below it.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

_HOME = {
    # The client
    "StreamsConfig": "streams_py.config",
    "KafkaStreams": "streams_py.runtime.kafka_streams",
    "StreamThreadExceptionResponse": "streams_py.runtime.kafka_streams",
    "RestoreListener": "streams_py.runtime.restore.listener",
    "State": "streams_py.runtime.states",
    "ThreadState": "streams_py.runtime.states",
    "TaskMetadata": "streams_py.runtime.threads.thread_metadata",
    "ThreadMetadata": "streams_py.runtime.threads.thread_metadata",
    "QueryableStoreType": "streams_py.state.queries",
    "ReadOnlyKeyValueStore": "streams_py.state.queries",
    "ReadOnlySessionStore": "streams_py.state.windowed.queries",
    "ReadOnlyWindowStore": "streams_py.state.windowed.queries",
    # Topologies
    "BranchedKStream": "streams_py.topology.dsl.branches",
    "StreamsBuilder": "streams_py.topology.dsl.builder",
    "GlobalKTable": "streams_py.topology.dsl.global_table",
    "KGroupedStream": "streams_py.topology.dsl.grouped_stream",
    "KGroupedTable": "streams_py.topology.dsl.grouped_table",
    "KStream": "streams_py.topology.dsl.kstream",
    "KTable": "streams_py.topology.dsl.ktable",
    "Partitioner": "streams_py.topology.nodes",
    "Punctuation": "streams_py.topology.nodes",
    "RecordContext": "streams_py.topology.nodes",
    "ResetPolicy": "streams_py.topology.nodes",
    "TimestampExtractor": "streams_py.topology.nodes",
    "TopicChooser": "streams_py.topology.nodes",
    "Materialized": "streams_py.topology.dsl.options",
    "ConnectedStoreProvider": "streams_py.topology.processor",
    "FixedKeyProcessor": "streams_py.topology.processor",
    "FixedKeyProcessorContext": "streams_py.topology.processor",
    "FixedKeyProcessorSupplier": "streams_py.topology.processor",
    "FixedKeyRecord": "streams_py.topology.processor",
    "FixedKeyRecordFunction": "streams_py.topology.processor",
    "ProcessingContext": "streams_py.topology.processor",
    "Processor": "streams_py.topology.processor",
    "ProcessorContext": "streams_py.topology.processor",
    "ProcessorSupplier": "streams_py.topology.processor",
    "Record": "streams_py.topology.processor",
    "RecordFunction": "streams_py.topology.processor",
    "RecordMetadata": "streams_py.topology.processor",
    "ValueTransformer": "streams_py.topology.processor",
    "KeyValueStore": "streams_py.topology.stores",
    "StateStore": "streams_py.topology.stores",
    "StoreBuilder": "streams_py.topology.stores",
    "StoreKind": "streams_py.topology.stores",
    "TimestampedKeyValueStore": "streams_py.topology.stores",
    "ValueAndTimestamp": "streams_py.topology.stores",
    "key_value_store": "streams_py.topology.stores",
    "timestamped_key_value_store": "streams_py.topology.stores",
    "CogroupedKStream": "streams_py.topology.dsl.cogrouped_stream",
    "SessionWindowedKStream": "streams_py.topology.dsl.windowed_stream",
    "TimeWindowedKStream": "streams_py.topology.dsl.windowed_stream",
    "Suppressed": "streams_py.topology.dsl.suppressed",
    "EmitStrategy": "streams_py.topology.windows",
    "JoinWindows": "streams_py.topology.windows",
    "SessionWindows": "streams_py.topology.windows",
    "SlidingWindows": "streams_py.topology.windows",
    "TimeWindows": "streams_py.topology.windows",
    "Windowed": "streams_py.serdes.windowed",
    "SessionStore": "streams_py.topology.window_stores",
    "TimestampedWindowStore": "streams_py.topology.window_stores",
    "WindowStore": "streams_py.topology.window_stores",
    "session_store": "streams_py.topology.window_stores",
    "timestamped_window_store": "streams_py.topology.window_stores",
    "window_store": "streams_py.topology.window_stores",
    "Topology": "streams_py.topology.topology",
    "NOT_PUT": "streams_py.topology.versioned_stores",
    "VALID_TO_UNDEFINED": "streams_py.topology.versioned_stores",
    "VersionedKeyValueStore": "streams_py.topology.versioned_stores",
    "VersionedRecord": "streams_py.topology.versioned_stores",
    "versioned_key_value_store": "streams_py.topology.versioned_stores",
    # Handlers
    "Answer": "streams_py.runtime.tasks.handlers",
    "DeadLetter": "streams_py.runtime.tasks.handlers",
    "DeadLetterQueue": "streams_py.runtime.tasks.handlers",
    "DeserializationHandler": "streams_py.runtime.tasks.handlers",
    "ErrorContext": "streams_py.runtime.tasks.handlers",
    "FailedRecord": "streams_py.runtime.tasks.handlers",
    "Origin": "streams_py.runtime.tasks.handlers",
    "OutgoingRecord": "streams_py.runtime.tasks.handlers",
    "ProcessingHandler": "streams_py.runtime.tasks.handlers",
    "ProductionHandler": "streams_py.runtime.tasks.handlers",
    "Response": "streams_py.runtime.tasks.handlers",
    "log_and_continue": "streams_py.runtime.tasks.handlers",
    "log_and_fail": "streams_py.runtime.tasks.handlers",
    "fail_on_invalid_timestamp": "streams_py.runtime.tasks.timestamps",
    "log_and_skip_invalid": "streams_py.runtime.tasks.timestamps",
    "partition_time_if_invalid": "streams_py.runtime.tasks.timestamps",
    "wall_clock_time": "streams_py.runtime.tasks.timestamps",
    # Values
    "HostInfo": "streams_protocol.types",
    "TaskId": "streams_protocol.types",
    "TopicPartition": "streams_protocol.types",
    "Serde": "streams_py.serdes.serde",
    # Errors
    "AssignorError": "streams_py.errors",
    "BrokerUnavailable": "streams_py.errors",
    "ConfigError": "streams_py.errors",
    "DeserializationError": "streams_py.errors",
    "IllegalStateError": "streams_py.errors",
    "InvalidStateStoreError": "streams_py.errors",
    "InvalidStateStorePartitionError": "streams_py.errors",
    "LockError": "streams_py.errors",
    "MissingSourceTopicError": "streams_py.errors",
    "ProcessingError": "streams_py.errors",
    "ProductionError": "streams_py.errors",
    "SerializationError": "streams_py.errors",
    "StateError": "streams_py.errors",
    "StreamsError": "streams_py.errors",
    "StreamsNotStartedError": "streams_py.errors",
    "TaskAssignmentError": "streams_py.errors",
    "TimeoutExceeded": "streams_py.errors",
    "TopologyError": "streams_py.errors",
    "UnknownStateStoreError": "streams_py.errors",
    "UnsupportedOperationError": "streams_py.errors",
}
_MODULES = frozenset({"assignment", "errors", "serdes"})

if TYPE_CHECKING:
    __version__: str
    from streams_protocol.types import HostInfo, TaskId, TopicPartition
    from streams_py import assignment, errors, serdes
    from streams_py.config import StreamsConfig
    from streams_py.errors import (
        AssignorError,
        BrokerUnavailable,
        ConfigError,
        DeserializationError,
        IllegalStateError,
        InvalidStateStoreError,
        InvalidStateStorePartitionError,
        LockError,
        MissingSourceTopicError,
        ProcessingError,
        ProductionError,
        SerializationError,
        StateError,
        StreamsError,
        StreamsNotStartedError,
        TaskAssignmentError,
        TimeoutExceeded,
        TopologyError,
        UnknownStateStoreError,
        UnsupportedOperationError,
    )
    from streams_py.runtime.kafka_streams import KafkaStreams, StreamThreadExceptionResponse
    from streams_py.runtime.restore.listener import RestoreListener
    from streams_py.runtime.states import State, ThreadState
    from streams_py.runtime.tasks.handlers import (
        Answer,
        DeadLetter,
        DeadLetterQueue,
        DeserializationHandler,
        ErrorContext,
        FailedRecord,
        Origin,
        OutgoingRecord,
        ProcessingHandler,
        ProductionHandler,
        Response,
        log_and_continue,
        log_and_fail,
    )
    from streams_py.runtime.tasks.timestamps import (
        fail_on_invalid_timestamp,
        log_and_skip_invalid,
        partition_time_if_invalid,
        wall_clock_time,
    )
    from streams_py.runtime.threads.thread_metadata import TaskMetadata, ThreadMetadata
    from streams_py.serdes.serde import Serde
    from streams_py.serdes.windowed import Windowed
    from streams_py.state.queries import QueryableStoreType, ReadOnlyKeyValueStore
    from streams_py.state.windowed.queries import ReadOnlySessionStore, ReadOnlyWindowStore
    from streams_py.topology.dsl.branches import BranchedKStream
    from streams_py.topology.dsl.builder import StreamsBuilder
    from streams_py.topology.dsl.cogrouped_stream import CogroupedKStream
    from streams_py.topology.dsl.global_table import GlobalKTable
    from streams_py.topology.dsl.grouped_stream import KGroupedStream
    from streams_py.topology.dsl.grouped_table import KGroupedTable
    from streams_py.topology.dsl.kstream import KStream
    from streams_py.topology.dsl.ktable import KTable
    from streams_py.topology.dsl.options import Materialized
    from streams_py.topology.dsl.suppressed import Suppressed
    from streams_py.topology.dsl.windowed_stream import SessionWindowedKStream, TimeWindowedKStream
    from streams_py.topology.nodes import (
        Partitioner,
        Punctuation,
        RecordContext,
        ResetPolicy,
        TimestampExtractor,
        TopicChooser,
    )
    from streams_py.topology.processor import (
        ConnectedStoreProvider,
        FixedKeyProcessor,
        FixedKeyProcessorContext,
        FixedKeyProcessorSupplier,
        FixedKeyRecord,
        FixedKeyRecordFunction,
        ProcessingContext,
        Processor,
        ProcessorContext,
        ProcessorSupplier,
        Record,
        RecordFunction,
        RecordMetadata,
        ValueTransformer,
    )
    from streams_py.topology.stores import (
        KeyValueStore,
        StateStore,
        StoreBuilder,
        StoreKind,
        TimestampedKeyValueStore,
        ValueAndTimestamp,
        key_value_store,
        timestamped_key_value_store,
    )
    from streams_py.topology.topology import Topology
    from streams_py.topology.versioned_stores import (
        NOT_PUT,
        VALID_TO_UNDEFINED,
        VersionedKeyValueStore,
        VersionedRecord,
        versioned_key_value_store,
    )
    from streams_py.topology.window_stores import (
        SessionStore,
        TimestampedWindowStore,
        WindowStore,
        session_store,
        timestamped_window_store,
        window_store,
    )
    from streams_py.topology.windows import EmitStrategy, JoinWindows, SessionWindows, SlidingWindows, TimeWindows

__all__ = [
    "NOT_PUT",
    "VALID_TO_UNDEFINED",
    "Answer",
    "AssignorError",
    "BranchedKStream",
    "BrokerUnavailable",
    "CogroupedKStream",
    "ConfigError",
    "ConnectedStoreProvider",
    "DeadLetter",
    "DeadLetterQueue",
    "DeserializationError",
    "DeserializationHandler",
    "EmitStrategy",
    "ErrorContext",
    "FailedRecord",
    "FixedKeyProcessor",
    "FixedKeyProcessorContext",
    "FixedKeyProcessorSupplier",
    "FixedKeyRecord",
    "FixedKeyRecordFunction",
    "GlobalKTable",
    "HostInfo",
    "IllegalStateError",
    "InvalidStateStoreError",
    "InvalidStateStorePartitionError",
    "JoinWindows",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "KafkaStreams",
    "KeyValueStore",
    "LockError",
    "Materialized",
    "MissingSourceTopicError",
    "Origin",
    "OutgoingRecord",
    "Partitioner",
    "ProcessingContext",
    "ProcessingError",
    "ProcessingHandler",
    "Processor",
    "ProcessorContext",
    "ProcessorSupplier",
    "ProductionError",
    "ProductionHandler",
    "Punctuation",
    "QueryableStoreType",
    "ReadOnlyKeyValueStore",
    "ReadOnlySessionStore",
    "ReadOnlyWindowStore",
    "Record",
    "RecordContext",
    "RecordFunction",
    "RecordMetadata",
    "ResetPolicy",
    "Response",
    "RestoreListener",
    "Serde",
    "SerializationError",
    "SessionStore",
    "SessionWindowedKStream",
    "SessionWindows",
    "SlidingWindows",
    "State",
    "StateError",
    "StateStore",
    "StoreBuilder",
    "StoreKind",
    "StreamThreadExceptionResponse",
    "StreamsBuilder",
    "StreamsConfig",
    "StreamsError",
    "StreamsNotStartedError",
    "Suppressed",
    "TaskAssignmentError",
    "TaskId",
    "TaskMetadata",
    "ThreadMetadata",
    "ThreadState",
    "TimeWindowedKStream",
    "TimeWindows",
    "TimeoutExceeded",
    "TimestampExtractor",
    "TimestampedKeyValueStore",
    "TimestampedWindowStore",
    "TopicChooser",
    "TopicPartition",
    "Topology",
    "TopologyError",
    "UnknownStateStoreError",
    "UnsupportedOperationError",
    "ValueAndTimestamp",
    "ValueTransformer",
    "VersionedKeyValueStore",
    "VersionedRecord",
    "WindowStore",
    "Windowed",
    "assignment",
    "errors",
    "fail_on_invalid_timestamp",
    "key_value_store",
    "log_and_continue",
    "log_and_fail",
    "log_and_skip_invalid",
    "partition_time_if_invalid",
    "serdes",
    "session_store",
    "timestamped_key_value_store",
    "timestamped_window_store",
    "versioned_key_value_store",
    "wall_clock_time",
    "window_store",
]


if not TYPE_CHECKING:  # else every misspelt name would be of type object to a type checker

    def __getattr__(name: str) -> object:
        """Load a public name on first use."""
        if name == "__version__":
            from importlib.metadata import version

            return version("kafka-streams-py")
        if name in _MODULES:
            return _import_module(f"{__name__}.{name}")
        home = _HOME.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(_import_module(home), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
