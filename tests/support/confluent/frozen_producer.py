"""A process that writes the time into a topic, with the producer of a stream thread, until it is killed.

    python -m tests.support.confluent.frozen_producer BOOTSTRAP TOPIC SESSION_TIMEOUT_MS

Prints ``writes`` when it has begun, and ``expired`` each time that records waited for too long.
"""

from __future__ import annotations

import sys
import time

from streams_py.adapters.confluent import ConfluentClients
from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import RecordsExpiredError


def main(bootstrap: str, topic: str, session_timeout_ms: str) -> None:
    config = StreamsConfig.of(
        {"application.id": "app", "bootstrap.servers": bootstrap, "session.timeout.ms": session_timeout_ms}
    )
    clients = ConfluentClients(config)
    clients._batch_bytes_max = lambda topic: None  # type: ignore[method-assign]  # the mock cluster never answers this
    producer = clients.producer("thread-1")
    producer.partitions_for(topic)
    print("writes", flush=True)
    while True:
        try:
            for _ in range(10):
                producer.produce(topic, b"%d" % time.time_ns(), b"k", 0, None, -1, None)
            producer.poll(10)
            time.sleep(0.005)
        except RecordsExpiredError:
            producer.reset()
            print("expired", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
