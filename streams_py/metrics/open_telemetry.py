"""Metrics and spans for OpenTelemetry. Only its API is used; the SDK that the program configures exports them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.trace import StatusCode

from streams_py.metrics.families import FAMILIES, Family, family_name, family_of
from streams_py.runtime.client.kafka_streams import KafkaStreams
from streams_py.runtime.group.timeline import RebalanceTimeline
from streams_py.runtime.processes.measured import Measured

_SCOPE: Final = "streams_py"
_FRESH_S: Final = 0.5
"""Time in s for which measured values are reused, because a collection requests each metric separately."""


def observe_metrics(streams: KafkaStreams, meter_provider: Any = None) -> None:
    """Let a meter provider observe all metrics of a client, as long as the client exists.

    Metrics that processors define are observed from the collection after their first appearance on.

    Args:
        streams: The client.
        meter_provider: The meter provider. Default: the global one.
    """
    meter = metrics.get_meter(_SCOPE, meter_provider=meter_provider)

    def observe(families: Iterable[Family]) -> None:
        for family in families:
            create = meter.create_observable_counter if family.is_total else meter.create_observable_gauge
            name = family_name(family.group, family.name)
            create(name, callbacks=[_callback(family, measured)], description=family.help)

    measured = _Measured(streams, observe)
    observe(FAMILIES.values())


def trace_rebalances(streams: KafkaStreams, tracer_provider: Any = None) -> None:
    """Create a span for each rebalance of each stream thread, with a child span for each phase.

    The phases are ``revoke``, ``hand-over``, and on the leader ``decode``, ``topics``, ``lags``, ``assign``,
    ``threads`` and ``encode``.

    Args:
        streams: The client.
        tracer_provider: The tracer provider. Default: the global one.
    """
    tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)

    def tell(timeline: RebalanceTimeline) -> None:
        attributes = {
            "kafka.streams.application_id": streams.config.application_id,
            "kafka.streams.thread_id": timeline.thread,
            "kafka.streams.leader": timeline.was_leader,
            "kafka.streams.active_tasks": timeline.active_tasks,
            "kafka.streams.standby_tasks": timeline.standby_tasks,
        }
        span = tracer.start_span("rebalance", start_time=timeline.began_ns, attributes=attributes)
        if timeline.error is not None:
            span.set_status(StatusCode.ERROR, timeline.error)
        within = trace.set_span_in_context(span)
        for phase in timeline.phases:
            child = tracer.start_span(phase.name, context=within, start_time=phase.began_ns)
            child.end(end_time=phase.ended_ns)
        span.end(end_time=timeline.ended_ns)

    streams.on_rebalance(tell)


class _Measured:
    """The measured values of a client. ``observe`` creates instruments for new metrics."""

    def __init__(self, streams: KafkaStreams, observe: Callable[[Iterable[Family]], None]) -> None:
        self._streams = streams
        self._observe = observe
        self._known = set(FAMILIES)
        self._metrics: Sequence[Measured] = ()
        self._until_s = 0.0
        self.application = streams.config.application_id

    def metrics(self) -> Sequence[Measured]:
        now_s = time.monotonic()
        if now_s >= self._until_s:
            self._metrics = self._streams.measure()
            self._until_s = now_s + _FRESH_S
            new = {(group, name) for group, _, name, _ in self._metrics} - self._known
            if new:
                self._known |= new
                families = [family_of(*one) for one in sorted(new)]
                # On another thread, because the SDK requests metrics while it holds the lock for new instruments.
                threading.Thread(target=self._observe, args=(families,), daemon=True).start()
        return self._metrics


def _callback(family: Family, measured: _Measured) -> Callable[[CallbackOptions], list[Any]]:
    def observe(options: CallbackOptions) -> list[Any]:
        found = []
        for group, tags, name, value in measured.metrics():
            if group == family.group and name == family.name:
                attributes = {"application-id": measured.application, **dict(tags)}
                if isinstance(value, str):
                    attributes[name] = value
                found.append(Observation(1 if isinstance(value, str) else value, attributes))
        return found

    return observe
