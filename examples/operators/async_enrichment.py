"""Enrichment over HTTP: 64 look-ups at a time, with results in the order of the records of each key.

Topics: ``orders`` (order number -> JSON), out: ``enriched-orders``.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from asyncio import to_thread
from collections.abc import Callable, Coroutine
from typing import Any

from streams_py import KafkaStreams, StreamsBuilder, Topology, serdes

Order = dict[str, Any]
Lookup = Callable[[Order], Coroutine[Any, Any, Order]]


def http_lookup(url: str) -> Lookup:
    """Return a look-up of ``<url>/customers/<id>``. An asynchronous client such as httpx would need no thread."""

    def get(customer: str) -> Any:
        with urllib.request.urlopen(f"{url}/customers/{customer}", timeout=2) as answer:
            return json.load(answer)

    async def enrich(order: Order) -> Order:
        return {**order, "customer": await to_thread(get, order["customer"])}

    return enrich


def build_topology(enrich: Lookup) -> Topology:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.JSON)
    orders = builder.stream("orders").map_values_async(enrich, concurrency=64, timeout=5_000, value=serdes.JSON)
    orders.to("enriched-orders")
    return builder.build()


if __name__ == "__main__":
    config = {"application.id": "enrichment", "bootstrap.servers": os.environ.get("BOOTSTRAP", "embedded")}
    KafkaStreams(build_topology(http_lookup(sys.argv[1])), config).run()
