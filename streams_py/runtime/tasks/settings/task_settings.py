"""The part of the configuration that a task needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from streams_py.ports import Clock
from streams_py.runtime.tasks.settings.configured import resolve_extractor
from streams_py.runtime.tasks.settings.handlers import (
    Handler,
    default_production_handler,
    log_and_fail,
    resolve_handler,
)
from streams_py.serdes import Serde, resolve_serde
from streams_py.state.metrics.measured_stores import Measuring
from streams_py.topology.declare.nodes import InPlaceChecks, TimestampExtractor


class _Config(Protocol):
    """The attributes of ``StreamsConfig`` that this module reads."""

    @property
    def application_id(self) -> str: ...
    @property
    def buffered_records_per_partition(self) -> int: ...
    @property
    def max_task_idle_ms(self) -> int: ...
    @property
    def task_timeout_ms(self) -> int: ...
    @property
    def default_key_serde(self) -> Any: ...
    @property
    def default_value_serde(self) -> Any: ...
    @property
    def dsl_store_suppliers_class(self) -> str: ...
    @property
    def default_timestamp_extractor(self) -> Any: ...
    @property
    def deserialization_exception_handler(self) -> Any: ...
    @property
    def processing_exception_handler(self) -> Any: ...
    @property
    def production_exception_handler(self) -> Any: ...
    @property
    def processing_guarantee(self) -> str: ...
    @property
    def state_dir(self) -> str: ...
    @property
    def app(self) -> Mapping[str, Any]: ...
    @property
    def upgrade_from(self) -> str | None: ...
    @property
    def metrics_recording_level(self) -> str: ...
    @property
    def errors_show_record_bytes(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSettings:
    """Settings of all tasks of a client. Times in ms.

    Attributes:
        max_task_idle_ms: As ``max.task.idle.ms``; -1: never wait for a partition.
        emit_interval_ms: Minimum interval between checks for final results (windows, unmatched join partners).
        default_timestamp_extractor: None: the record's own timestamp, and an error if it has none.
        in_place_checks: Checks that functions don't change values in place.
        persistent_stores: Whether stores without an explicit type are on disk (``dsl.store.suppliers.class``).
        upgrade_from: Release that other members may still have; some record formats depend on it.
    """

    application_id: str
    buffered_records_per_partition: int = 1000
    max_task_idle_ms: int = 0
    task_timeout_ms: int = 300_000
    emit_interval_ms: int = 1000
    reference_behaviour: bool = False
    """Whether operators and stores behave as Apache Kafka Streams where its results are wrong. Only for conformance
    runs."""
    default_key_serde: Serde[Any] | None = None
    default_value_serde: Serde[Any] | None = None
    persistent_stores: bool = True
    default_timestamp_extractor: TimestampExtractor | None = None
    deserialization_handler: Handler = log_and_fail
    processing_handler: Handler = log_and_fail
    production_handler: Handler = default_production_handler
    exactly_once: bool = False
    state_dir: str = ""
    app_configs: Mapping[str, Any] = field(default_factory=dict)
    upgrade_from: str | None = None
    in_place_checks: InPlaceChecks | None = None
    shows_record_bytes: bool = False
    """Whether errors show the first bytes of a record that cannot be read."""
    is_measured: bool = False
    """Whether nodes, records and store operations are measured: ``metrics.recording.level`` is above INFO. Nodes are
    then not fused."""
    is_traced: bool = False
    """Whether the level is TRACE: the age of records that are put into stores is measured, too."""

    def measuring(self, clock: Clock) -> Measuring:
        """Return what to measure in stores."""
        return Measuring(now_ms=clock.now_ms, uses=self.is_measured, ages=self.is_traced)

    @classmethod
    def from_config(cls, config: _Config) -> TaskSettings:
        """Return the settings in a StreamsConfig. ConfigError for an unusable handler, serde or extractor."""
        return cls(
            application_id=config.application_id,
            buffered_records_per_partition=config.buffered_records_per_partition,
            max_task_idle_ms=config.max_task_idle_ms,
            task_timeout_ms=config.task_timeout_ms,
            default_key_serde=_serde(config.default_key_serde, "default.key.serde"),
            default_value_serde=_serde(config.default_value_serde, "default.value.serde"),
            persistent_stores=config.dsl_store_suppliers_class == "rocksdb",
            default_timestamp_extractor=resolve_extractor(config.default_timestamp_extractor),
            deserialization_handler=resolve_handler(
                config.deserialization_exception_handler, "deserialization.exception.handler"
            ),
            processing_handler=resolve_handler(config.processing_exception_handler, "processing.exception.handler"),
            production_handler=resolve_handler(config.production_exception_handler, "production.exception.handler"),
            exactly_once=config.processing_guarantee == "exactly_once_v2",
            state_dir=config.state_dir,
            app_configs=config.app,
            upgrade_from=config.upgrade_from,
            shows_record_bytes=config.errors_show_record_bytes,
            is_measured=config.metrics_recording_level != "INFO",
            is_traced=config.metrics_recording_level == "TRACE",
        )


def _serde(given: object, key: str) -> Serde[Any] | None:
    return None if given is None else resolve_serde(given, setting=key)
