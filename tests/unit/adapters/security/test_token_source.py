"""OAUTHBEARER tokens while the identity provider fails."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from streams_py.adapters.security.token_source import KeptTokens
from streams_py.errors import BrokerUnavailableError


class Provider:
    """Gives tokens that are valid for 100 s, unless it fails or answers with something else."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.failures = 0
        self.answer: object = None
        self.calls = 0
        self.slept: list[float] = []

    def token(self) -> tuple[str, float]:
        self.calls += 1
        if self.failures:
            self.failures -= 1
            raise RuntimeError("secret-5ecret")
        return self.answer or (f"token-{self.calls}", self.now_s + 100)  # type: ignore[return-value]

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def tokens(self, patience_s: float = 0.0) -> Callable[[], tuple[str, float]]:
        return KeptTokens(self.token, patience_s=patience_s, now_s=lambda: self.now_s, sleep=self.sleep)


def test_token_is_kept_while_it_is_valid_and_renewed_soon(caplog: pytest.LogCaptureFixture) -> None:
    provider = Provider()
    tokens = provider.tokens()
    assert tokens() == ("token-1", 1_100)
    provider.failures = 3
    with caplog.at_level(logging.INFO, "streams_py"):
        assert tokens() == ("token-1", 1_060)
        provider.now_s += 70
        assert tokens() == ("token-1", 1_100)
        assert tokens() == ("token-1", 1_100)
        assert tokens() == ("token-5", 1_170)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"], "one line per outage"
    assert "keeping the token that is valid for 100 s" in caplog.text
    assert "5ecret" not in caplog.text


def test_failure_after_the_expiry_is_an_outage() -> None:
    provider = Provider()
    tokens = provider.tokens()
    tokens()
    provider.now_s += 100
    provider.failures = 1
    with pytest.raises(BrokerUnavailableError, match=r"failed \(RuntimeError\), and no valid token is left"):
        tokens()
    assert tokens()[0] == "token-3"
    assert not provider.slept, "nothing waits without patience"


def test_first_token_is_retried_with_growing_pauses() -> None:
    provider = Provider()
    provider.failures = 4
    assert provider.tokens(patience_s=8)()[0] == "token-5"
    assert provider.slept == [0.1, 0.2, 0.4, 0.8]
    provider.failures = 100
    with pytest.raises(BrokerUnavailableError):
        provider.tokens(patience_s=8)()
    assert sum(provider.slept[4:]) <= 8


@pytest.mark.parametrize(
    "answer", ["token", ("", 1.0), ("token", "soon"), ("token", float("nan")), (b"token", 1.0), (1, 2, 3)]
)
def test_answer_that_is_no_token_is_a_failure(answer: object) -> None:
    provider = Provider()
    tokens = provider.tokens()
    tokens()
    provider.answer = answer
    assert tokens() == ("token-1", 1_060)
