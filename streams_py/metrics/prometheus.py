"""Metrics for Prometheus, of any number of clients in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Final, Self

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder

from streams_py.http.probe import Answer, ProbeServer
from streams_py.metrics.families import PROCESS, family_name, family_of, label
from streams_py.runtime.client.kafka_streams import KafkaStreams
from streams_py.runtime.processes.child import this_process
from streams_py.runtime.processes.measured import Measured
from streams_py.runtime.processes.metrics import ProcessMetrics

LOOPBACK: Final = "127.0.0.1"


class StreamsCollector:
    """A collector for a registry of prometheus-client: ``REGISTRY.register(StreamsCollector(streams))``.

    A text value, such as the state, is exported as a label of a metric with the value 1.
    """

    def __init__(self, *streams: KafkaStreams) -> None:
        self._streams = streams

    def collect(self) -> Iterator[Any]:
        """Return the current metrics."""
        return _families(({"application_id": one.config.application_id}, one.measure()) for one in self._streams)


class _ProcessesCollector:
    """Metrics of several processes, each with the label ``process``."""

    def __init__(self, read: Callable[[], Iterable[ProcessMetrics]]) -> None:
        self._read = read

    def collect(self) -> Iterator[Any]:
        """Request the current metrics from each process."""
        return _families(map(_of_process, self._read()))


def _of_process(one: ProcessMetrics) -> tuple[dict[str, str], Iterable[Measured]]:
    own = (
        Measured(PROCESS, (), "up", float(one.measured is not None)),
        Measured(PROCESS, (), "restarts-total", one.restarts),
    )
    return {"application_id": one.application_id, "process": str(one.process)}, (*own, *(one.measured or ()))


def _families(sources: Iterable[tuple[dict[str, str], Iterable[Measured]]]) -> Iterator[Any]:
    """Yield the families of all sources. A source is labels, and the metrics that get them."""
    found: dict[str, Any] = {}
    samples: set[tuple[str, frozenset[tuple[str, str]]]] = set()
    for of_source, measured in sources:
        for group, tags, name, value in measured:
            known = family_of(group, name)
            labels = {**{label(tag): of for tag, of in tags}, **of_source}
            if isinstance(value, str):
                labels[label(name)] = value
            called = family_name(group, name)
            family = found.get(called)
            if family is None:
                kind = CounterMetricFamily if known.is_total else GaugeMetricFamily
                family = found[called] = kind(called, known.help, labels=())
            # Not add_metric, which supports only one set of labels: the label for a store depends on the kind of store.
            sample = family.name + "_total" * known.is_total
            once = (sample, frozenset(labels.items()))
            if once not in samples:  # converted names may be equal, and Prometheus rejects duplicate samples
                samples.add(once)
                family.add_sample(sample, labels, 1.0 if isinstance(value, str) else value)
    yield from found.values()


class _Server:
    """An HTTP server for a collector's metrics at ``http://host:port/metrics``."""

    def __init__(self, collector: Any, host: str, port: int, names: Iterable[str], key: str, advice: str) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(collector)
        self._server = ProbeServer(host, port, self._answer, name="metrics", key=key, advice=advice, names=names)
        self.host = host
        """The address at which the server listens."""
        self.port = self._server.port
        """The port at which the server listens."""

    def _answer(self, path: str, headers: dict[str, str]) -> Answer:
        if path.partition("?")[0] not in ("/", "/metrics"):
            return Answer(404, "text/plain; charset=utf-8", b"metrics are at /metrics\n")
        encode, content_type = choose_encoder(headers.get("accept", ""))
        return Answer(200, content_type, encode(self._registry))

    def stop(self) -> None:
        """Stop the server, and close the port."""
        self._server.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


class MetricsServer(_Server):
    """An HTTP server for Prometheus at ``http://host:port/metrics``, without authentication.

    Args:
        *streams: The clients.
        host: Address to listen on. By default, only this machine can reach the server.
        port: Port to listen on; 0: any free port.
        names: Host names under which the server may be reached, in addition to its address and the machine's name.

    Raises:
        ConfigError: The port is in use.
    """

    def __init__(
        self, *streams: KafkaStreams, host: str = LOOPBACK, port: int = 9464, names: Iterable[str] = ()
    ) -> None:
        child = this_process()
        advice = (
            "choose another port"
            if child is None or port == 0
            else f"this is process {child.number} of several that all run this line: remove the line, and use "
            f"run(processes=..., metrics={port}), which serves the metrics of all processes"
        )
        super().__init__(StreamsCollector(*streams), host, port, names, "port", advice)


class ProcessMetricsServer(_Server):
    """An HTTP server for the metrics of an application's processes. Each scrape calls ``read``."""

    def __init__(
        self, read: Callable[[], Iterable[ProcessMetrics]], *, host: str, port: int, names: Iterable[str] = ()
    ) -> None:
        super().__init__(_ProcessesCollector(read), host, port, names, "metrics", "choose another port")
