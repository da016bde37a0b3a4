"""OAUTHBEARER tokens while the identity provider fails or does not answer."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterator

import pytest

from streams_py.adapters.security.token_source import KeptTokens
from streams_py.errors import BrokerUnavailableError
from tests.support.waiting import until


class Provider:
    """Gives tokens that are valid for 100 s, unless it fails, hangs or answers with something else."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.failures = 0
        self.answer: object = None
        self.calls = 0
        self.slept: list[float] = []
        self.answers = threading.Event()
        self.answers.set()

    def token(self) -> tuple[str, float]:
        self.calls += 1
        number = self.calls
        self.answers.wait()
        if self.failures:
            self.failures -= 1
            raise RuntimeError("secret-5ecret")
        return self.answer or (f"token-{number}", self.now_s + 100)  # type: ignore[return-value]

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds

    def tokens(self, patience_s: float = 60.0, *, retries: bool = False) -> KeptTokens:
        return KeptTokens(
            self.token, patience_s=patience_s, retries=retries,
            now_s=lambda: self.now_s, monotonic_s=lambda: self.now_s, sleep=self.sleep,
        )  # fmt: skip


@pytest.fixture
def provider() -> Iterator[Provider]:
    provider = Provider()
    yield provider
    provider.answers.set()


def test_token_is_used_for_most_of_its_lifetime_and_then_renewed(provider: Provider) -> None:
    tokens = provider.tokens()
    assert tokens() == ("token-1", 1_100)
    provider.now_s += 79
    assert tokens() == ("token-1", 1_100)
    provider.now_s += 2
    assert tokens() == ("token-2", 1_181)
    assert provider.calls == 2


def test_token_is_kept_while_it_is_valid_and_renewed_soon(provider: Provider, caplog: pytest.LogCaptureFixture) -> None:
    tokens = provider.tokens()
    tokens()
    provider.now_s += 80
    provider.failures = 2
    with caplog.at_level(logging.INFO, "streams_py"):
        assert tokens() == ("token-1", 1_090)
        provider.now_s += 5
        assert tokens() == ("token-1", 1_095)
        provider.now_s += 10
        assert tokens() == ("token-4", 1_195)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"], "one line per outage"
    assert "keeping the token that is valid for 20 s" in caplog.text
    assert "5ecret" not in caplog.text


def test_function_that_fails_is_called_with_growing_pauses(provider: Provider) -> None:
    tokens = provider.tokens()
    provider.failures = 1_000
    times = []
    for _ in range(2_000):
        before = provider.calls
        with pytest.raises(BrokerUnavailableError, match=r"failed \(RuntimeError\), and no valid token is left"):
            tokens()
        if provider.calls > before:
            times.append(provider.now_s)
        provider.now_s += 0.05
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, *[10.0] * (len(pauses) - 7)], abs=0.06)
    assert len(pauses) > 12


def test_failure_after_the_expiry_is_an_outage(provider: Provider) -> None:
    tokens = provider.tokens()
    tokens()
    provider.now_s += 100
    provider.failures = 1
    with pytest.raises(BrokerUnavailableError, match=r"failed \(RuntimeError\), and no valid token is left"):
        tokens()
    provider.now_s += 0.1
    assert tokens()[0] == "token-3"
    assert not provider.slept, "only retries wait"


def test_librdkafka_gets_the_expired_token_rather_than_none(provider: Provider) -> None:
    """Without a token, its clients cannot be created again during an outage."""
    tokens = provider.tokens(patience_s=8, retries=True)
    tokens()
    provider.now_s += 200
    provider.failures = 2
    assert tokens() == ("token-1", provider.now_s + 10)
    assert tokens() == ("token-1", provider.now_s + 10)
    assert provider.calls == 2, "the function is called with pauses"
    assert not provider.slept
    provider.now_s += 10
    assert tokens() == ("token-1", provider.now_s + 10)
    provider.now_s += 10
    assert tokens() == ("token-4", provider.now_s + 100)


def test_first_token_is_retried_with_growing_pauses(provider: Provider) -> None:
    provider.failures = 4
    assert provider.tokens(patience_s=8, retries=True)()[0] == "token-5"
    assert provider.slept == pytest.approx([0.1, 0.2, 0.4, 0.8])
    provider.failures = 100
    with pytest.raises(BrokerUnavailableError):
        provider.tokens(patience_s=8, retries=True)()
    assert sum(provider.slept[4:]) <= 8


def test_provider_that_does_not_answer_holds_up_one_caller_for_a_moment_while_the_token_is_valid(
    provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    tokens = provider.tokens()
    tokens()
    tokens._patience_s = 0.1  # it is a constructor argument, but must change between two calls
    provider.now_s += 80
    provider.answers.clear()
    assert tokens() == ("token-1", 1_090)
    tokens._patience_s = 3_600  # see above
    for _ in range(3):
        assert tokens() == ("token-1", 1_090), "others do not wait for the running call"
    assert provider.calls == 2
    assert "no answer yet" in caplog.text
    provider.answers.set()
    until(lambda: tokens._call is None, "the function has answered")  # a call would start another one
    assert tokens() == ("token-2", 1_180)


def test_provider_that_does_not_answer_is_an_outage_without_a_valid_token(provider: Provider) -> None:
    provider.answers.clear()
    tokens = provider.tokens(patience_s=0.0)
    for _ in range(2):
        with pytest.raises(BrokerUnavailableError, match=r"failed \(no answer yet\)"):
            tokens()
    provider.answers.set()
    until(lambda: tokens._call is None, "the function has answered")  # a call would start another one
    assert tokens()[0] == "token-1"


@pytest.mark.parametrize(
    "answer", ["token", ("", 1.0), ("token", "soon"), ("token", float("nan")), (b"token", 1.0), (1, 2, 3)]
)
def test_answer_that_is_no_token_is_a_failure(provider: Provider, answer: object) -> None:
    tokens = provider.tokens()
    tokens()
    provider.now_s += 80
    provider.answer = answer
    assert tokens() == ("token-1", 1_090)
