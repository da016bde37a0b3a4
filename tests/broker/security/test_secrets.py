"""Passwords and keys never leave the process: not in output, logs at DEBUG, errors, events, files and answers.

The application runs as in a search for an error, with DEBUG for everything, including both client libraries.
"""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition

from streams_py.testing.broker import SecuredBroker
from tests.support.broker.site import PASSWORD, Site

PROGRAM = """
import json, logging, sys
logging.basicConfig(level=logging.DEBUG)
from streams_py import KafkaStreams, StreamsBuilder, StreamsConfig, serdes
from streams_py.metrics.prometheus import MetricsServer
from streams_py.query.service import QueryService
given = json.loads(sys.argv[1])
topics = json.loads(sys.argv[2])
builder = StreamsBuilder()
(
    builder.stream(topics[0], key=serdes.STRING, value=serdes.STRING)
    .group_by(lambda _, word: word, key=serdes.STRING, value=serdes.STRING)
    .count(store="counts").to_stream().to(topics[1], key=serdes.STRING, value=serdes.INT64)
)
config = StreamsConfig.of(given)
print(repr(config), str(config), config)
streams = KafkaStreams(builder.build(), config)
print(repr(streams))
with streams, QueryService(streams, port=0) as queries, MetricsServer(streams, port=0) as metrics:
    print(f"http://127.0.0.1:{queries.port}", f"http://127.0.0.1:{metrics.port}", flush=True)
    sys.stdin.readline()
"""
ADDRESSES = """
stores stores/counts/keys/a stores/counts/keys/none stores/none/all stores/counts/keys/%ff?partition=x metadata
metadata/counts metadata/counts/a lags nothing
""".split()


def _forms(secret: str) -> list[bytes]:
    """Return the text itself and its forms in a log: quoted, encoded."""
    raw = secret.encode()
    return [raw, base64.b64encode(raw).rstrip(b"="), raw.hex().encode()]


def _search(found: dict[str, bytes], secrets: list[str]) -> list[str]:
    return [
        f"{where}: {form!r}"
        for where, data in found.items()
        for secret in secrets
        for form in _forms(secret)
        if form in data
    ]


def _events(site: Site) -> bytes:
    topic = f"{site.id}-assignment-events"
    reader = Consumer({"bootstrap.servers": site.broker.bootstrap, "group.id": "-"})
    try:
        partitions = reader.list_topics(topic, timeout=30).topics[topic].partitions
        reader.assign([TopicPartition(topic, number, 0) for number in partitions])
        return b"".join((record.value() or b"") for record in reader.consume(1000, 3) if record.error() is None)
    finally:
        reader.close()


def _answers(url: str, addresses: Iterable[str]) -> dict[str, bytes]:
    """Whatever the status says."""
    return {one: httpx.get(f"{url}/{one}", timeout=60, trust_env=False).content for one in addresses}


@pytest.mark.parametrize(
    "how", [pytest.param("SCRAM-SHA-512", id="scram"), pytest.param("PLAIN", id="plain", marks=pytest.mark.weekly),
            pytest.param("certificate", id="certificate", marks=pytest.mark.weekly)]
)  # fmt: skip
def test_secrets_of_an_application_are_found_nowhere(
    site: Callable[[], Site], secured_kafka_broker: SecuredBroker, tmp_path: Path, how: str
) -> None:
    import json

    made = site()
    keys = made.login(how)
    secrets = [PASSWORD, "plain-marker-5ecret"]
    if how == "certificate":
        key = Path(keys.pop("ssl.key.location")).read_text()
        keys["ssl.key.pem"] = key
        keys["ssl.certificate.pem"] = Path(keys.pop("ssl.certificate.location")).read_text()
        secrets += key.splitlines()[1:-1]
    made.grant("An application")
    made.write("a", "b", "a")
    settings = made.settings(keys, **{"assignment.events.level": "tasks", "application.server": "127.0.0.1:1"})
    program = [sys.executable, "-c", PROGRAM, json.dumps(settings), json.dumps([made.input, made.output])]
    log = tmp_path / "log"
    with (
        log.open("wb") as stderr,
        subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr) as process,
    ):
        try:
            made.until_counted({"a": 2, "b": 1})
            assert process.stdout is not None
            said = []
            while not (line := process.stdout.readline()).startswith(b"http://"):
                assert line, "it has ended"
                said.append(line)
            queries, metrics = line.decode().split()
            answers = _answers(queries, ADDRESSES) | _answers(metrics, ["metrics"])
            out, _ = process.communicate(b"\n", timeout=120)
        finally:
            process.kill()
    err = log.read_bytes()
    assert process.returncode == 0, err[-2000:]
    assert b"DEBUG" in err
    files = {str(path): path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file()}
    assert files
    events = _events(made)
    assert events
    assert b"counts" in answers["stores"]
    assert b"absent" in answers["stores/counts/keys/none"]
    assert b"streams" in answers["metrics"]
    assert _search({"stdout": b"".join(said) + out, "stderr": err, "events": events, **answers, **files}, secrets) == []
