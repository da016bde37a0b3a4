"""What is measured, and what Prometheus, OpenTelemetry and the dashboard make of it."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

prometheus_client = pytest.importorskip("prometheus_client")
pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.metrics import MeterProvider  # noqa: E402
from opentelemetry.sdk.metrics.export import InMemoryMetricReader  # noqa: E402
from opentelemetry.sdk.trace import TracerProvider  # noqa: E402
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402
from prometheus_client.parser import text_string_to_metric_families  # noqa: E402

from streams_py.errors import ConfigError  # noqa: E402
from streams_py.metrics import MetricsServer, StreamsCollector, dashboard, observe_metrics, trace_rebalances  # noqa: E402
from streams_py.metrics.families import FAMILIES, family_name  # noqa: E402
from streams_py.metrics.prometheus import ProcessMetricsServer  # noqa: E402
from streams_py.runtime.client.metrics import client_metrics  # noqa: E402
from streams_py.runtime.group.timeline import RebalanceTimeline  # noqa: E402
from streams_py.runtime.processes.child import ChildProcess  # noqa: E402
from streams_py.runtime.processes.measured import Measured  # noqa: E402
from streams_py.runtime.processes.metrics import ProcessMetrics  # noqa: E402
from streams_py.serdes import INT64, STRING  # noqa: E402
from streams_py.state.buffers.suppress_buffer import SuppressionBuffer  # noqa: E402
from streams_py.state.stores.codec import StoreCodec  # noqa: E402
from streams_py.topology.declare.nodes import RecordContext  # noqa: E402
from streams_py.topology.declare.stores import ValueAndTimestamp  # noqa: E402
from tests.support.metrics.measured_client import Client  # noqa: E402
from tests.support.runtime.world import task, tp  # noqa: E402
from tests.support.waiting import until  # noqa: E402

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")

LEFT = ("stream-task-metrics", "restore-remaining-records-total")


@pytest.fixture
def client(tmp_path: Path) -> Any:
    made = Client(tmp_path, metrics_recording_level="TRACE")
    made.work()
    return made


def test_metrics_say_what_was_done(client: Client) -> None:
    metrics = client_metrics(client.metrics_input(), topology="Topologies:")
    name = client.steps.thread.name
    assert metrics["stream-metrics{client-id=me}"]["state"] == "RUNNING"
    thread = metrics[f"stream-thread-metrics{{thread-id={name}}}"]
    assert (thread["process-total"], thread["process-rate"]) == (3, 1.5)
    assert (thread["poll-records-avg"], thread["task-created-total"], thread["task-closed-total"]) == (3, 2, 0)
    assert (thread["process-records-avg"], thread["process-records-max"]) == (1.5, 2)  # one, two
    of_task = metrics[f"stream-task-metrics{{thread-id={name},task-id=0_0}}"]
    assert (of_task["process-total"], of_task["dropped-records-total"]) == (3, 0)
    assert of_task["restore-remaining-records-total"] == 0
    updater = metrics[f"stream-state-updater-metrics{{thread-id={client.steps.updater.name}}}"]
    assert (updater["active-restoring-tasks"], updater["standby-updating-tasks"]) == (0, 1)
    topics = [group for group in metrics if group.startswith("stream-topic-metrics") and "topic=in}" in group]
    assert [metrics[group]["records-consumed-total"] for group in topics] == [3]
    client.steps.run({})
    again = client_metrics(client.metrics_input(), topology="Topologies:")[f"stream-thread-metrics{{thread-id={name}}}"]
    assert (again["task-created-total"], again["task-closed-total"]) == (2, 2)


def test_tasks_of_a_paused_thread_are_counted_as_paused(client: Client) -> None:
    def updater() -> dict[str, float | str]:
        metrics = client_metrics(client.metrics_input(), topology="Topologies:")[
            f"stream-state-updater-metrics{{thread-id={client.steps.updater.name}}}"
        ]
        return {name: value for name, value in metrics.items() if name.endswith("-tasks")}

    running = {
        "active-restoring-tasks": 0,
        "standby-updating-tasks": 1,
        "active-paused-tasks": 0,
        "standby-paused-tasks": 0,
    }
    assert updater() == running
    client.steps.thread.pause(True)
    assert updater() == {**running, "standby-updating-tasks": 0, "standby-paused-tasks": 1}
    client.steps.thread.pause(False)
    assert updater() == running


def test_task_that_is_restored_says_how_much_is_left(tmp_path: Path) -> None:
    def left(of: Client) -> list[float | str]:
        return [m.value for m in of.measure() if (m.group, m.name) == LEFT]

    client = Client(tmp_path)
    client.world.write("app-counts-changelog", *[bytes(16)] * 7)
    client.steps.membership.round({task("0_0"): [tp("in-0")]})
    client.steps.loop.iterate()
    client.steps.updater._request_ends()  # the first step of a round
    assert left(client) == [7]
    client.steps.turn(4)
    assert left(client) == [0]


def test_records_of_nodes_are_counted_with_debug_only(client: Client, tmp_path: Path) -> None:
    def nodes(of: Client) -> list[float | str]:
        return [
            m.value for m in of.measure() if m.group == "stream-processor-node-metrics" and m.name == "process-total"
        ]

    assert nodes(client)[0] == 3
    quiet = Client(tmp_path / "quiet")
    quiet.work()
    assert nodes(quiet) == []
    assert not any(m.group == "stream-task-metrics" and m.name == "process-total" for m in quiet.measure())


def test_age_of_records_is_looked_at_ten_times_per_second(tmp_path: Path) -> None:
    client = Client(tmp_path)
    client.work()
    for later_ms, age_ms in ((99, 700), (1, 40), (1, 800)):
        client.world.clock.advance(later_ms)
        client.world.log.produce("in", b"v", b"k", 0, None, client.world.clock.now_ms() - age_ms, None)
        client.steps.turn()
    found = {m.name: m.value for m in client.measure() if m.name.startswith("record-e2e-latency")}
    assert found == {"record-e2e-latency-avg": 20, "record-e2e-latency-min": 0, "record-e2e-latency-max": 40}


class OfOtherKinds:
    """What only windows, sessions and stores that are restored do."""

    def remove(self) -> None: ...
    def fetch(self) -> None: ...
    def restore(self) -> None: ...


def use_every_operation(client: Client) -> None:
    """Use the store operations that a count does not need."""
    (of_task,) = [held for held in client.steps.thread.shown_tasks if held.is_active]
    store = of_task.stores.store("counts")
    assert store.get("k").value == 3
    assert store.delete("missing") is None
    store.flush_cache()
    store.put_all([])
    store.put_if_absent("k", ValueAndTimestamp(7, 0))
    for scan in (store.all(), store.range(None, None), store.prefix_scan(b"k")):
        assert next(scan)
    other = OfOtherKinds()
    uses = of_task.stores._measured.uses["counts"]  # type: ignore[attr-defined]  # custom stores have other methods
    uses.watch(other)
    for use in (other.remove, other.fetch, other.restore):
        use()
    codec: StoreCodec[str, int] = StoreCodec("t", STRING, INT64)
    buffer: SuppressionBuffer[str, int] = SuppressionBuffer("s", codec, RecordContext(), log=None)
    uses.watch(buffer)
    for key in ("a", "bb", "a"):
        buffer.put(key, 1, None, 0)
    (*_, of_node) = of_task.bound.node_metrics.values()
    of_node.emitted("suppression-emit")
    of_node.emitted("window-aggregate-final-emit")
    of_node.emission_took("window-aggregate-final-emit", 3, client.world.clock.now_ms())


def test_every_metric_is_known_to_the_exporters_and_every_known_one_exists(client: Client) -> None:
    use_every_operation(client)
    client.world.clock.advance(1001)
    client.steps.turn()  # what was counted goes from the cache to the sink
    assert {(m.group, m.name) for m in client.measure()} == set(FAMILIES)


def test_stores_say_how_they_are_used_with_debug_only(client: Client, tmp_path: Path) -> None:
    use_every_operation(client)
    name = f"stream-state-metrics{{thread-id={client.steps.thread.name},task-id=0_0,rocksdb-state-id=counts}}"
    used = {
        metric: float(of) for metric, of in client_metrics(client.metrics_input(), topology="Topologies:")[name].items()
    }
    assert used["put-rate"] == 3  # in two seconds three records, each read and written in one step, and three more
    assert used["get-rate"] == used["delete-rate"] == used["all-rate"] == 0.5
    assert 0 < used["get-latency-avg"] <= used["get-latency-max"] < 60e9
    assert used["estimate-num-keys"] >= 0
    assert used["block-cache-capacity"] > 0
    quiet = Client(tmp_path / "quiet")
    quiet.work()
    names = {m.name for m in quiet.measure() if m.group == "stream-state-metrics"}
    assert {"num-open-iterators", "num-keys"} <= names
    assert not any(name.endswith("-latency-avg") for name in names)
    assert not names & {"oldest-iterator-open-since-ms", "iterator-duration-avg"}


def test_buffers_of_suppress_say_how_large_they_are_with_debug(client: Client) -> None:
    use_every_operation(client)
    name = f"stream-state-metrics{{thread-id={client.steps.thread.name},task-id=0_0,rocksdb-state-id=counts}}"
    found = client_metrics(client.metrics_input(), topology="")[name]
    assert found["suppression-buffer-count-avg"] == pytest.approx(5 / 3)
    assert found["suppression-buffer-count-max"] == 2
    assert 0 < float(found["suppression-buffer-size-avg"]) < float(found["suppression-buffer-size-max"])


def test_caches_say_how_much_of_what_is_read_they_have_with_debug_only(client: Client, tmp_path: Path) -> None:
    def metrics(of: Client) -> dict[str, float]:
        names = ("hit-ratio-avg", "hit-ratio-min", "hit-ratio-max", "cache-size-bytes-total")
        return {m.name: float(m.value) for m in of.measure() if m.name in names and ("task-id", "0_0") in m.tags}

    found = metrics(client)
    assert found["hit-ratio-avg"] == pytest.approx(2 / 3)  # the first record of a key was not there
    assert (found["hit-ratio-min"], found["hit-ratio-max"]) == (0, pytest.approx(2 / 3))
    cache = client.steps.parts.table.running()[0].stores.store("counts")._cache  # users cannot empty it
    assert found["cache-size-bytes-total"] == cache.used_bytes > 0
    client.world.clock.advance(1001)
    client.steps.turn()
    client.steps.membership.round({})
    assert metrics(client) == {}
    quiet = Client(tmp_path / "quiet")
    quiet.work()
    assert metrics(quiet) == {}


def test_tasks_say_what_they_took_of_the_thread(client: Client) -> None:
    metrics = client_metrics(client.metrics_input(), topology="Topologies:")
    name = client.steps.thread.name
    client.steps.parts.table.running()[0].process_latency.add(12, 3)
    active = client_metrics(client.metrics_input(), topology="")[f"stream-task-metrics{{thread-id={name},task-id=0_0}}"]
    assert active["active-process-ratio"] == 1
    assert (active["process-latency-max"], active["process-latency-avg"]) == (4, 2)
    assert active["process-ratio"] == pytest.approx(0.006)
    assert (active["restore-total"], active["restore-rate"]) == (0, 0)
    assert metrics["stream-metrics{client-id=me}"]["topology-description"] == "Topologies:"


def test_tasks_say_how_much_was_replayed_into_their_stores(client: Client) -> None:
    for partition in (0, 1):
        for _ in range(3 + partition):
            client.world.log.produce("app-counts-changelog", bytes(8), b"k", partition, None, 1, None)
    client.steps.turn(2)
    (copy,) = [m.value for m in client.measure() if m.name == "update-total"]
    assert copy == 4
    updater = {m.name: m.value for m in client.measure() if m.group == "stream-state-updater-metrics"}
    assert {name for name in updater if name.endswith("-ratio")} == {
        "idle-ratio",
        "active-restore-ratio",
        "standby-update-ratio",
        "checkpoint-ratio",
    }


def test_standbys_and_closed_stores_are_measured_too(client: Client) -> None:
    def stores() -> set[str]:
        return {dict(m.tags)["task-id"] for m in client.measure() if m.group == "stream-state-metrics"}

    assert stores() == {"0_0", "0_1"}
    client.steps.run({})
    assert stores() == set()


def test_prometheus_reads_them(client: Client) -> None:
    registry = prometheus_client.CollectorRegistry()
    registry.register(StreamsCollector(client))  # type: ignore[arg-type]  # what it uses
    thread = {"application_id": "app", "thread_id": client.steps.thread.name}
    get = registry.get_sample_value
    assert get("kafka_streams_stream_thread_metrics_process_total", thread) == 3
    assert get("kafka_streams_stream_thread_metrics_process_rate", thread) == 1.5
    state = {"application_id": "app", "client_id": "me", "state": "RUNNING"}
    assert get("kafka_streams_stream_metrics_state", state) == 1
    topic = {"task_id": "0_0", "processor_node_id": "KSTREAM-SOURCE-0000000000", "topic": "in"}
    assert get("kafka_streams_stream_topic_metrics_records_consumed_total", {**thread, **topic}) == 3


class Own:
    """A client whose processors define metrics."""

    config = SimpleNamespace(application_id="app")

    def __init__(self, *metrics: tuple[str, str, float]) -> None:
        self.metrics = metrics

    def measure(self) -> list[Measured]:
        tags = (("thread-id", "t"), ("orders-id", "shop"), ("1 größe", "x"))
        return [Measured(group, tags, name, value) for group, name, value in self.metrics]


def test_prometheus_reads_what_processors_measure_whatever_they_call_it() -> None:
    group = "stream-orders-metrics"
    own: Any = Own((group, "paid-total", 3), (group, "zu spät-latency-avg", 1.5), (group, "zu.spät-latency-avg", 7))
    registry = prometheus_client.CollectorRegistry()
    registry.register(StreamsCollector(own))
    tags = {"application_id": "app", "thread_id": "t", "orders_id": "shop", "tag_1_gr__e": "x"}
    assert registry.get_sample_value("kafka_streams_stream_orders_metrics_paid_total", tags) == 3
    assert registry.get_sample_value("kafka_streams_stream_orders_metrics_zu_sp_t_latency_avg", tags) == 1.5
    read = list(text_string_to_metric_families(prometheus_client.generate_latest(registry).decode()))
    assert sum(len(family.samples) for family in read) == 2


def test_server_listens_on_loopback_and_says_when_its_port_is_taken(client: Client) -> None:
    with MetricsServer(client, port=0) as server:  # type: ignore[arg-type]
        assert server.host == "127.0.0.1"
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
            text = answer.read().decode()
        assert "# TYPE kafka_streams_stream_thread_metrics_commit_total counter" in text
        with pytest.raises(ConfigError, match=f"127.0.0.1:{server.port}"):
            MetricsServer(client, port=server.port)  # type: ignore[arg-type]


def test_each_process_has_its_label_and_a_silent_one_is_down(client: Client) -> None:
    found = [ProcessMetrics("app", 1, 0, tuple(client.measure())), ProcessMetrics("app", 2, 7, None)]
    with (
        ProcessMetricsServer(lambda: found, host="127.0.0.1", port=0) as server,
        urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer,
    ):
        families = {one.name: one.samples for one in text_string_to_metric_families(answer.read().decode())}
    up = {sample.labels["process"]: sample.value for sample in families["kafka_streams_process_metrics_up"]}
    restarts = families["kafka_streams_process_metrics_restarts"]
    assert (up, [sample.value for sample in restarts]) == ({"1": 1, "2": 0}, [0, 7])
    assert {sample.labels["process"] for sample in families["kafka_streams_stream_thread_metrics_process"]} == {"1"}


def test_server_in_a_process_of_several_says_what_serves_all(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams_py.metrics.prometheus.this_process", lambda: ChildProcess(2, -1, -1, -1))
    with (
        MetricsServer(client, port=0) as server,  # type: ignore[arg-type]
        pytest.raises(ConfigError, match=rf"process 2 of several.*run\(processes=..., metrics={server.port}\)"),
    ):
        MetricsServer(client, port=server.port)  # type: ignore[arg-type]


def test_lag_of_each_input_partition_is_measured_every_second(tmp_path: Path) -> None:
    def lags() -> dict[tuple[str, str], float | str]:
        return {
            (dict(m.tags)["topic"], dict(m.tags)["partition"]): m.value
            for m in client.measure()
            if (m.group, m.name) == ("consumer-fetch-manager-metrics", "records-lag")
        }

    client = Client(tmp_path, max_poll_records=2)
    client.steps.run({task("0_0"): [tp("in-0")], task("0_1"): [tp("in-1")]})
    client.steps.turn()
    assert lags() == {("in", "0"): 0, ("in", "1"): 0}
    client.world.write("in", b"v", b"w", b"x", b"y", b"z")
    client.world.clock.advance(1000)
    client.steps.turn()
    assert lags() == {("in", "0"): 3, ("in", "1"): 0}
    client.world.clock.advance(999)
    client.steps.turn()
    assert lags() == {("in", "0"): 3, ("in", "1"): 0}
    client.world.clock.advance(1)
    client.steps.turn()
    assert lags() == {("in", "0"): 0, ("in", "1"): 0}
    client.steps.run({task("0_0"): [tp("in-0")]})
    assert lags() == {("in", "0"): 0}


def test_open_telemetry_reads_them(client: Client) -> None:
    use_every_operation(client)
    reader = InMemoryMetricReader()
    observe_metrics(client, MeterProvider([reader]))  # type: ignore[arg-type]
    data = reader.get_metrics_data()
    points = {
        metric.name: metric.data.data_points[0]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert points.keys() == {family_name(*known) for known in FAMILIES}
    found = points["kafka_streams_stream_thread_metrics_process_total"]
    assert (found.value, found.attributes["thread-id"]) == (3, client.steps.thread.name)
    assert points["kafka_streams_stream_metrics_state"].attributes["state"] == "RUNNING"


def test_open_telemetry_reads_what_processors_measure_once_it_was_seen() -> None:
    own: Any = Own(("stream-orders-metrics", "paid-total", 3))
    reader = InMemoryMetricReader()
    observe_metrics(own, MeterProvider([reader]))

    def paid() -> list[float]:
        data = reader.get_metrics_data()
        scopes = [] if data is None else [scope for of in data.resource_metrics for scope in of.scope_metrics]
        return [
            metric.data.data_points[0].value
            for scope in scopes
            for metric in scope.metrics
            if metric.name == "kafka_streams_stream_orders_metrics_paid_total"
        ]

    until(lambda: paid() == [3], "the metric to be known")


def test_rebalance_is_a_span_with_its_phases(tmp_path: Path) -> None:
    client = Client(tmp_path)
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    trace_rebalances(client, provider)  # type: ignore[arg-type]
    client.steps.membership.lead()
    client.steps.turn(4)
    *phases, whole = spans.get_finished_spans()
    assert whole.name == "rebalance"
    assert whole.attributes["kafka.streams.leader"]
    assert whole.attributes["kafka.streams.active_tasks"] == 2
    assert [phase.name for phase in phases] == ["decode", "topics", "lags", "assign", "threads", "encode", "hand-over"]
    assert all(phase.parent.span_id == whole.context.span_id for phase in phases)
    assert whole.start_time <= phases[0].start_time <= phases[-1].end_time <= whole.end_time
    spans.clear()
    client.steps.membership.round({task("0_0"): [tp("in-0")]})
    assert [span.name for span in spans.get_finished_spans()] == ["revoke", "hand-over", "rebalance"]
    client.steps.close()


def test_listener_that_fails_disturbs_nobody(tmp_path: Path) -> None:
    client = Client(tmp_path)
    heard: list[RebalanceTimeline] = []
    client.on_rebalance(lambda timeline: 1 // 0)
    client.on_rebalance(heard.append)
    client.work()
    assert [(timeline.active_tasks, timeline.standby_tasks, timeline.error) for timeline in heard] == [(1, 1, None)]


def test_dashboard_asks_for_metrics_that_exist() -> None:
    panels = json.loads(dashboard())["panels"]
    asked = {
        name for panel in panels for target in panel["targets"] for name in re.findall(r"kafka_\w+", target["expr"])
    }
    assert len(panels) == 19
    assert asked <= {family_name(*known) for known in FAMILIES}
    assert len(asked) > 15


def test_page_about_metrics_does_what_it_says(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"streams": client}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 5
    for block in blocks:
        exec(compile(block.replace("port=9464", "port=0"), "metrics.md", "exec"), names)
    names["server"].stop()
    assert json.loads((tmp_path / "kafka-streams.json").read_text())["title"] == "Kafka Streams for Python"
    named = {(m.group, m.name) for m in client.measure()}
    assert {group for group, _ in named} == set(re.findall(r"^\| `((?:stream|consumer)-[\w-]+)`", PAGE, re.MULTILINE))


def test_page_calls_missing_only_what_there_is_not(client: Client) -> None:
    missing = {
        (group, name)
        for group, names in re.findall(r"^\| of `(stream-[\w-]+)` \| ([^|]+) \|", PAGE, re.MULTILINE)
        for name in re.findall(r"`([\w-]+)`", names)
    }
    assert len(missing) > 5
    assert not missing & {(m.group, m.name) for m in client.measure()}
