"""A secret in any key that can contain one never leaves the process as text: repr, errors, logs at DEBUG."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from streams_py import KafkaStreams, StreamsBuilder, StreamsConfig
from streams_py.config.keys import CLIENT_KEYS, is_secret
from streams_py.connect.settings import WorkerSettings
from streams_py.errors import StreamsError
from tests.support.secrets import CANARY, JAAS, everything_logged

URL = f"https://user:{CANARY}@127.0.0.1:1/x"
LOGINS = {
    "none": {},
    "password": {
        "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": CANARY,
    },
    "token": {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"},
    "certificate": {"security.protocol": "SSL"},
}  # fmt: skip
CASES = [(key, value) for key in sorted(filter(is_secret, CLIENT_KEYS)) for value in (CANARY, JAAS)]
CASES += [(key, URL) for key in sorted(CLIENT_KEYS) if key.endswith("url")]
CASES += [("app.db.password", CANARY), ("app.db.url", URL), ("app.db.dsn", f"host=h password={CANARY} dbname=d")]
BASE = {"application.id": "a", "bootstrap.servers": "127.0.0.1:1"}


def test_every_key_that_names_a_secret_is_known_for_one() -> None:
    words = ("password", "secret", "jaas", "key.pem", "keystore.key", "kinit.cmd", "extensions", "oauthbearer.config")
    assert [key for key in CLIENT_KEYS if key.endswith(words) and not is_secret(key)] == []


@pytest.mark.parametrize(
    ("prefix", "login"), [("", "none"), ("", "password"), ("", "token"), ("", "certificate"), ("producer.", "password")]
)
@pytest.mark.parametrize(("key", "value"), CASES, ids=[f"{key}-{number}" for number, (key, _) in enumerate(CASES)])
def test_secret_is_in_no_text(key: str, value: str, prefix: str, login: str, tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    name = key if key.startswith("app.") else prefix + key
    said = []
    with everything_logged() as log:
        try:
            config = StreamsConfig.of({**BASE, "state.dir": str(tmp_path), **LOGINS[login], name: value})
            said += [repr(config), str(config), f"{config}"]
            streams = KafkaStreams(builder.build(), config)
            said.append(repr(streams))
            streams.close()
        except StreamsError as refused:
            said.append("".join(traceback.format_exception(refused)))
    assert said
    assert CANARY not in "".join(said) + log.getvalue()


@pytest.mark.parametrize(
    ("key", "value"), CASES[:-3], ids=[f"{key}-{number}" for number, (key, _) in enumerate(CASES[:-3])]
)
def test_secret_of_a_worker_is_in_no_text(key: str, value: str) -> None:
    given = {
        "group.id": "g",
        "config.storage.topic": "c", "offset.storage.topic": "o", "status.storage.topic": "s",
        "key.converter": "k", "value.converter": "v",
    }  # fmt: skip
    said = []
    with everything_logged() as log:
        for extra in ({}, {"connect.protocol": "none"}):
            try:
                said.append(repr(WorkerSettings.of({**given, key: value, f"producer.{key}": value, **extra})))
            except StreamsError as refused:
                said.append("".join(traceback.format_exception(refused)))
    assert len(said) == 2
    assert CANARY not in "".join(said) + log.getvalue()
