"""One application with its user, topics and rights, on a secured broker."""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from streams_py import KafkaStreams, StreamsBuilder, serdes
from streams_py.testing.broker import SecuredBroker
from tests.support.broker.rights import Line, lines_of
from tests.support.waiting import until

_numbers = itertools.count()

PARTITIONS = 2

PASSWORD = "scram-marker-5ecret"


class Site:
    """The topics and the user of one application, with the rights of the page's tables."""

    def __init__(self, broker: SecuredBroker, folder: Path) -> None:
        number = f"{os.getpid()}-{next(_numbers)}"
        self.broker = broker
        self.folder = folder
        self.id, self.input, self.output = f"app-{number}", f"in-{number}", f"out-{number}"
        self.user = f"user-{number}"
        self.names = {
            "<application.id>": self.id,
            "<input>": self.input,
            "<output>": self.output,
            "<topic>": self.input,
        }
        for topic in (self.input, self.output):
            broker.create_topic(topic, PARTITIONS)

    def login(self, how: str) -> dict[str, str]:
        """Keys of this site's user, who is known from now on by the name that the lists have."""
        match how:
            case "SCRAM-SHA-512":
                return self.broker.add_user(self.user, PASSWORD)
            case "PLAIN":
                self.user = "plain-user"
                return self.broker.password_settings("PLAIN", self.user, "plain-marker-5ecret")
            case _:
                keys = self.broker.certificate_settings(self.user)
                self.user = f"CN={self.user}"
                return keys

    def grant(self, *headings: str, but: Line | None = None) -> None:
        """Give the user the rights of these tables, but for one line."""
        lines = [line for heading in headings for line in lines_of(heading)]
        self.allow([line for line in lines if line != but])

    def allow(self, lines: Collection[Line]) -> None:
        if lines:
            self.broker.allow(self.user, {line.right(self.names) for line in lines})

    def settings(self, keys: Mapping[str, str], **more: Any) -> dict[str, Any]:
        return {
            "application.id": self.id,
            "state.dir": str(self.folder / "state"),
            "commit.interval.ms": 100,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 300,
            **keys,
            **more,
        }

    def properties(self, keys: Mapping[str, str]) -> Path:
        """The same as a file for ``--config``."""
        file = self.folder / "client.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in {"application.id": self.id, **keys}.items()))
        return file

    def streams(self, settings: Mapping[str, Any]) -> KafkaStreams:
        """Counts words: a repartition topic and a changelog."""
        builder = StreamsBuilder()
        (
            builder.stream(self.input, key=serdes.STRING, value=serdes.STRING)
            .group_by(lambda _, word: word, key=serdes.STRING, value=serdes.STRING)
            .count(store="counts")
            .to_stream()
            .to(self.output, key=serdes.STRING, value=serdes.INT64)
        )
        return KafkaStreams(builder.build(), settings)

    def write(self, *words: str) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap})
        for word in words:
            producer.produce(self.input, word.encode())
        assert producer.flush(60) == 0

    def counts(self) -> dict[str, int]:
        """Return the counts in the output, by word."""
        reader = Consumer(
            {"bootstrap.servers": self.broker.bootstrap, "group.id": "-", "isolation.level": "read_committed"}
        )
        try:
            reader.assign([TopicPartition(self.output, number, 0) for number in range(PARTITIONS)])
            records = [record for record in reader.consume(1000, 2) if record.error() is None]
        finally:
            reader.close()
        return {record.key().decode(): int.from_bytes(record.value(), "big") for record in records}

    def until_counted(self, expected: Mapping[str, int]) -> None:
        until(lambda: self.counts() == expected, f"the counts {expected}")
