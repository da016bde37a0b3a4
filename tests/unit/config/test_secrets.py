"""Secrets do not leave in error texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_py.config.secrets import ERROR_TEXT_CHARS_MAX, redact

SECRET = "hunter2-Xyz"


@pytest.mark.parametrize(
    "text",
    [
        f"sasl.jaas.config=org.apache.PlainLoginModule required username='u' password='{SECRET}';",
        f'sasl.jaas.config: required password="{SECRET} {SECRET}"; more {SECRET}',
        f"login failed: password={SECRET}",
        f"ssl.key.password = '{SECRET}', next",
        f'{{"client_secret": "{SECRET}", "a": 1}}',
        f"token={SECRET}&x=1",
        f"Authorization: Bearer {SECRET}",
        f"cannot reach https://user:{SECRET}@host:8081/subjects",
        f"PASSWORD={SECRET}",
        f"s3://key:{SECRET}@bucket/path",
        f"https://u:p@{SECRET}/x@host/path",
        f"https://u:a b {SECRET}@host/path",
        f"https://u:{SECRET}/x@host/path",
        f"Authorization: Basic {SECRET}==",
        f"Basic {SECRET}",
        f"authorization={SECRET}",
        f"app.pwd = {SECRET}",
        f"passphrase: {SECRET}",
        f"api_key={SECRET}",
        f"AccountKey={SECRET};x",
        f"aws_secret_access_key={SECRET}",
        f'{{"sas_token": "{SECRET}"}}',
        f"Cookie: {SECRET}",
        f"basic.auth.user.info=user:{SECRET}",
        f"https://blob/container?sv=1&sig={SECRET}&se=2",
        f"https://bucket/x?X-Amz-Signature={SECRET}&X-Amz-Date=1",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----",
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}",
    ],
)
def test_secret_is_hidden(text: str) -> None:
    assert SECRET not in redact(text)
    assert "***" in redact(text)


def test_plain_text_is_left_alone() -> None:
    text = "no answer from localhost:9092 within 60000 ms; user@host is not a URL"
    assert redact(text) == text


@given(st.text(max_size=6000))
def test_redacted_text_is_short(text: str) -> None:
    assert len(redact(text)) <= ERROR_TEXT_CHARS_MAX


def test_url_is_hidden_when_the_cut_goes_through_it() -> None:
    long = f"password={'x' * 4070} https://user:{SECRET}@host"
    assert SECRET[:6] not in redact(long)


@pytest.mark.parametrize(
    "part", ["a", "pass", "://a:", "a@", "-----BEGIN A-----", "pass.", "jaas", "basic ", "a:b ", "user:b "]
)
def test_hostile_text_costs_little(part: str) -> None:
    """A pattern that backtracks over all of it would not come to an end here."""
    for text in (part * 5000, f"://{part * 5000}", f"password{part * 5000}"):
        assert len(redact(text)) <= ERROR_TEXT_CHARS_MAX
