"""The examples of single operators do what their docstrings say."""

from __future__ import annotations

import importlib
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from examples.operators import (
    async_enrichment,
    batch_scoring,
    deduplication,
    fraud_detection,
    order_payment,
    page_views,
    sessionization,
)
from streams_py import serdes
from streams_py.testing import TopologyTestDriver

S, N = serdes.STRING, serdes.INT64
FOLDER = Path(page_views.__file__).parent
EXAMPLES = sorted(path for path in FOLDER.glob("*.py") if path.name != "__init__.py")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_short_and_linked_from_the_operator_it_is_about(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) < 80
    dsl = Path(importlib.import_module("streams_py.topology.dsl.kstream").__file__ or "").parent
    assert any(f"examples/operators/{path.name}" in module.read_text("utf-8") for module in dsl.glob("*.py"))


def test_views_are_counted_by_the_region_of_the_user() -> None:
    with TopologyTestDriver(page_views.build_topology()) as driver:
        driver.input_topic("user-regions", key=S, value=S).send_all(
            [("ann", "north"), ("bob", "south")], timestamp_ms=0
        )
        views = driver.input_topic("page-views", key=S, value=S)
        for user, at_ms in (("ann", 0), ("bob", 1), ("ann", 59_999), ("ann", 60_000), ("eve", 60_001)):
            views.send(user, "/", timestamp_ms=at_ms)
        counts = driver.output_topic("views-by-region", key=S, value=N).read_to_dict()
    assert counts == {"north@0": 2, "south@0": 1, "north@1": 1, "unknown@1": 1}


def test_session_is_told_when_silence_has_ended_it() -> None:
    with TopologyTestDriver(sessionization.build_topology()) as driver:
        clicks = driver.input_topic("clicks", key=S, value=S)
        for user, page, minute in (("ann", "/a", 0), ("ann", "/b", 29), ("ann", "/c", 70), ("bob", "/d", 140)):
            clicks.send(user, page, timestamp_ms=minute * 60_000)
        told = driver.output_topic("sessions", key=S, value=serdes.JSON).read_pairs()
    assert told == [
        ("ann", {"start": 0, "end": 29 * 60_000, "pages": ["/a", "/b"]}),
        ("ann", {"start": 70 * 60_000, "end": 70 * 60_000, "pages": ["/c"]}),
    ]


def test_orders_and_payments_meet_or_are_missed() -> None:
    with TopologyTestDriver(order_payment.build_topology()) as driver:
        orders, payments = (driver.input_topic(name, key=S, value=N) for name in ("orders", "payments"))
        orders.send("1", 10, timestamp_ms=0)
        orders.send("2", 20, timestamp_ms=1)
        payments.send("1", 10, timestamp_ms=5)
        payments.send("3", 30, timestamp_ms=6)
        for minute in (11, 12, 14):
            orders.send(f"at {minute}", 1, timestamp_ms=minute * 60_000)
            payments.send(f"at {minute}", 1, timestamp_ms=minute * 60_000)
        states = driver.output_topic("order-states", key=S, value=S).read_to_dict()
    assert {number: states.get(number) for number in "123"} == {
        "1": "paid",
        "2": "ordered 20, not paid",
        "3": "paid 30, never ordered",
    }


def test_event_passes_once_a_day() -> None:
    with TopologyTestDriver(deduplication.build_topology()) as driver:
        events = driver.input_topic("events", key=S, value=S)
        for at_ms in (0, 1, 2 * deduplication.DAY_MS):
            events.send("e", str(at_ms), timestamp_ms=at_ms)
        assert [value for _, value in driver.output_topic("unique-events", key=S, value=S).read_pairs()] == [
            "0",
            str(2 * deduplication.DAY_MS),
        ]


def test_many_or_large_payments_in_ten_seconds_raise_an_alarm() -> None:
    with TopologyTestDriver(fraud_detection.build_topology()) as driver:
        payments = driver.input_topic("payments", key=S, value=N)
        for second in (0, 20, 23, 26, 29):
            payments.send("many", 1, timestamp_ms=second * 1000)
        payments.send("large", 600, timestamp_ms=30_000)
        payments.send("large", 600, timestamp_ms=39_000)
        payments.send("fine", 600, timestamp_ms=60_000)
        payments.send("fine", 600, timestamp_ms=71_000)
        alarms = driver.output_topic("alarms", key=S, value=S).read_pairs()
    assert set(alarms) == {("many", "4 payments, 4 together"), ("large", "2 payments, 1200 together")}


class Customers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"name": self.path.rpartition("/")[2].upper()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *anything: Any) -> None:
        pass


def test_orders_are_enriched_over_http() -> None:
    server = HTTPServer(("127.0.0.1", 0), Customers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        look_up = async_enrichment.http_lookup(f"http://127.0.0.1:{server.server_port}")
        with TopologyTestDriver(async_enrichment.build_topology(look_up)) as driver:
            driver.input_topic("orders", key=S, value=serdes.JSON).send("1", {"customer": "ann"})
            enriched = driver.output_topic("enriched-orders", key=S, value=serdes.JSON).read_pairs()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert enriched == [("1", {"customer": {"name": "ANN"}})]


def test_readings_are_scored() -> None:
    with TopologyTestDriver(batch_scoring.build_topology(batch_scoring.Model())) as driver:
        driver.input_topic("readings", key=S, value=serdes.JSON).send_all([("a", [1.0, 2.0]), ("b", [])])
        assert driver.output_topic("scores", key=S, value=serdes.FLOAT64).read_to_dict() == {"a": 1.5, "b": 0.0}
