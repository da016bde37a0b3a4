"""Clients that are rejected or do not trust the broker fail immediately with one line that names the solution."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streams_py.cli.commands import app
from streams_py.connect.process import WorkerProcess
from streams_py.connect.settings import WorkerSettings
from streams_py.errors import ConfigError
from tests.support.broker.site import Site

Keys = dict[str, str]


def _password(site: Site, mechanism: str, name: str, password: str) -> Keys:
    return site.broker.password_settings(mechanism, name, password)


def _at(site: Site, door: str) -> Keys:
    return site.broker.certificate_settings("somebody") | {"bootstrap.servers": site.broker.listeners[door]}


def _without(keys: Keys, *names: str) -> Keys:
    return {key: value for key, value in keys.items() if key not in names}


CASES: dict[str, tuple[Callable[[Site], Keys], str]] = {
    "wrong-scram-password": (
        lambda site: site.login("SCRAM-SHA-512") | {"sasl.password": "wrong-marker-5ecret"},
        "refused the login of user user-",
    ),
    "wrong-plain-password": (
        lambda site: _password(site, "PLAIN", "plain-user", "wrong-marker-5ecret"),
        "refused the login of user plain-user",
    ),
    "unknown-user": (
        lambda site: _password(site, "SCRAM-SHA-512", "unknown-user", "wrong-marker-5ecret"),
        "correct sasl.username, sasl.password and sasl.mechanism",
    ),
    "mechanism-not-offered": (
        lambda site: _password(site, "SCRAM-SHA-256", "unknown-user", "wrong-marker-5ecret"),
        "does not offer sasl.mechanism SCRAM-SHA-256: it has SCRAM-SHA-512, PLAIN",
    ),
    "broker-expired": (lambda site: _at(site, "EXPIRED"), "has expired): the broker needs a new certificate"),
    "broker-foreign": (lambda site: _at(site, "FOREIGN"), "ssl.ca.location must name the certificate of the authority"),
    "broker-of-another-host": (lambda site: _at(site, "WRONG_HOST"), "not valid for '127.0.0.1'): use a host name"),
    "client-expired": (
        lambda site: site.broker.certificate_settings("late", expired=True),
        "does not accept this client's certificate",
    ),
    "client-foreign": (
        lambda site: site.broker.certificate_settings("stranger", foreign=True),
        "signed by an authority that the broker trusts",
    ),
    "client-without-certificate": (
        lambda site: _without(_at(site, "SSL"), "ssl.certificate.location", "ssl.key.location"),
        "does not accept this client's certificate",
    ),
    "tls-on-a-port-without": (
        lambda site: site.broker.certificate_settings("somebody") | {"bootstrap.servers": site.broker.bootstrap},
        "does not use TLS: set security.protocol to PLAINTEXT",
    ),
    "no-tls-on-a-port-with": (
        lambda site: {"bootstrap.servers": site.broker.listeners["SSL"]},
        "accepts TLS only: set security.protocol to SSL or SASL_SSL",
    ),
    "login-without-tls": (
        lambda site: site.login("PLAIN") | {"security.protocol": "SASL_PLAINTEXT"},
        "accepts TLS only: set security.protocol to SSL or SASL_SSL",
    ),
    "no-login-where-one-is-wanted": (
        lambda site: _at(site, "SASL_SSL"),
        "requires a login: set security.protocol to SASL_SSL, sasl.mechanism to one of SCRAM-SHA-512, PLAIN",
    ),
    "login-where-there-is-none": (
        lambda site: (
            _without(site.login("PLAIN"), "ssl.ca.location")
            | {"security.protocol": "SASL_PLAINTEXT", "bootstrap.servers": site.broker.bootstrap}
        ),
        "has no login on this port: set security.protocol to PLAINTEXT",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_start_says_in_one_sentence_who_is_not_let_in(
    site: Callable[[], Site], case: str, capfd: pytest.CaptureFixture[str]
) -> None:
    made, sentence = site(), CASES[case][1]
    keys = CASES[case][0](made)
    streams = made.streams(made.settings(keys))
    with pytest.raises(ConfigError) as refused:
        streams.start()
    streams.close()
    text = str(refused.value)
    assert sentence in text
    assert text.startswith(keys["bootstrap.servers"])
    assert "\n" not in text
    assert "marker" not in text
    command = ["inspect", "-g", made.id, "-b", keys["bootstrap.servers"], "--config", str(made.properties(keys))]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2
    said = result.stderr.splitlines()
    assert len(said) == 1, said
    assert sentence in said[0]
    assert "marker" not in "".join(capfd.readouterr()) + result.output


def test_connect_worker_says_in_one_sentence_that_it_is_not_let_in(site: Callable[[], Site]) -> None:
    made = site()
    keys = made.login("SCRAM-SHA-512") | {"sasl.password": "wrong-marker-5ecret"}
    storage = {f"{kind}.storage.topic": f"connect-{kind}" for kind in ("config", "offset", "status")}
    plain = {
        "group.id": "workers",
        "listeners": "http://127.0.0.1:0",
        "key.converter": "string",
        "value.converter": "json",
    }
    settings = WorkerSettings.of({**plain, **storage, **keys})
    with pytest.raises(ConfigError, match=r"refused the login of user user-.*: correct sasl\.username"):
        WorkerProcess(settings)


def test_one_broker_of_several_that_lets_us_in_is_enough(site: Callable[[], Site]) -> None:
    made = site()
    keys = made.login("certificate")
    keys["bootstrap.servers"] = f"{made.broker.listeners['EXPIRED']},{keys['bootstrap.servers']}"
    streams = made.streams(made.settings(keys))
    streams.start()
    streams.close()


@pytest.mark.weekly
def test_certificate_inside_the_settings_serves_both_clients(site: Callable[[], Site]) -> None:
    made = site()
    keys = made.login("certificate")
    inline = {
        "ssl.ca.pem": Path(keys.pop("ssl.ca.location")).read_text(),
        "ssl.certificate.pem": Path(keys.pop("ssl.certificate.location")).read_text(),
        "ssl.key.pem": Path(keys.pop("ssl.key.location")).read_text(),
    }
    made.grant("An application")
    made.write("a", "b", "a")
    settings = made.settings({**keys, **inline})
    with made.streams(settings):
        made.until_counted({"a": 2, "b": 1})
