"""Figures for Prometheus, of any number of clients in one process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Final, Self

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder

from streams_py.errors import ConfigError
from streams_py.http.probe import Answer, ProbeServer
from streams_py.metrics.families import family_name, family_of, label
from streams_py.runtime.kafka_streams import KafkaStreams

__all__ = ["MetricsServer", "StreamsCollector"]

LOOPBACK: Final = "127.0.0.1"


class StreamsCollector:
    """A collector for a registry of prometheus-client: ``REGISTRY.register(StreamsCollector(streams))``.

    What is text, such as the state, is a label of a figure that is 1.
    """

    def __init__(self, *streams: KafkaStreams) -> None:
        self._streams = streams

    def collect(self) -> Iterator[Any]:
        """The figures of now."""
        found: dict[str, Any] = {}
        samples: set[tuple[str, frozenset[tuple[str, str]]]] = set()
        for client in self._streams:
            application = client.config.application_id
            for group, tags, name, value in client.measure():
                known = family_of(group, name)
                labels = {"application_id": application, **{label(tag): of for tag, of in tags}}
                if isinstance(value, str):
                    labels[label(name)] = value
                called = family_name(group, name)
                family = found.get(called)
                if family is None:
                    kind = CounterMetricFamily if known.is_total else GaugeMetricFamily
                    family = found[called] = kind(called, known.help, labels=())
                # Not add_metric: that knows one set of labels, and a store's label says which kind of store it is.
                sample = family.name + "_total" * known.is_total
                once = (sample, frozenset(labels.items()))
                if once not in samples:  # names of the application's own may become equal; twice, and nothing is read
                    samples.add(once)
                    family.add_sample(sample, labels, 1.0 if isinstance(value, str) else value)
        yield from found.values()


class MetricsServer:
    """Answers Prometheus at ``http://host:port/metrics``. Only this machine can reach it unless ``host`` says
    otherwise; there is no authentication. Port 0 is any free one. ``names``: further names by which it may be called,
    beside its address and the machine's name. ConfigError when the port is in use."""

    def __init__(
        self, *streams: KafkaStreams, host: str = LOOPBACK, port: int = 9464, names: Iterable[str] = ()
    ) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(StreamsCollector(*streams))
        try:
            self._server = ProbeServer(host, port, self._answer, thread_name="metrics", names=names)
        except OSError as error:
            raise ConfigError(
                f"metrics cannot be served at {host}:{port} ({error.strerror or error}); choose another port",
                key="port",
            ) from None
        self.host = host
        self.port = self._server.port

    def _answer(self, path: str, headers: dict[str, str]) -> Answer:
        if path.partition("?")[0] not in ("/", "/metrics"):
            return Answer(404, "text/plain; charset=utf-8", b"metrics are at /metrics\n")
        encode, content_type = choose_encoder(headers.get("accept", ""))
        return Answer(200, content_type, encode(self._registry))

    def stop(self) -> None:
        """Close the port."""
        self._server.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
