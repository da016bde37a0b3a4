"""Secrets do not leave in error texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_py.redact import ERROR_TEXT_CHARS_MAX, redact

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
    ],
)
def test_secret_is_hidden(text: str) -> None:
    assert SECRET not in redact(text)
    assert "***" in redact(text)


def test_plain_text_is_left_alone() -> None:
    text = "no answer from localhost:9092 within 60000 ms; user@host is no URL"
    assert redact(text) == text


@given(st.text(max_size=6000))
def test_redacted_text_is_short(text: str) -> None:
    assert len(redact(text)) <= ERROR_TEXT_CHARS_MAX


def test_url_is_hidden_when_the_cut_goes_through_it() -> None:
    long = f"password={'x' * 4070} https://user:{SECRET}@host"
    assert SECRET[:6] not in redact(long)
