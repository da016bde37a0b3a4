"""Sends the task configurations of a connector to the leader."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import quote

import httpx

from streams_py.connect.errors import ConnectError, RebalanceExpectedError
from streams_py.connect.rest.protection import RestProtection
from streams_py.connect.rest.signing import sign
from streams_py.http.answers import bound_answers
from streams_py.http.deadlines import bound_duration
from streams_py.system.printable import text_of

_log = logging.getLogger("streams_py.connect")
_REFUSED_MAX: Final = 1000
"""Maximum number of connectors whose first refusal is known. The oldest is forgotten."""
_ROTATION_S: Final = 60.0
_ANSWER_BYTES_MAX: Final = 1 << 20
_TIMEOUT_S: Final = 90.0
"""Time limit of a whole request, in s."""
_MESSAGE_CHARS_MAX: Final = 2_000


class TaskConfigSender:
    """Sends task configurations. Not thread-safe: one thread forwards.

    ``protection`` is TLS and credentials. ``transport`` is for tests.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        transport: httpx.BaseTransport | None = None,
        protection: RestProtection | None = None,
    ) -> None:
        self._clock = clock
        self._protection = protection or RestProtection()
        self._client = httpx.Client(
            transport=transport, timeout=_TIMEOUT_S, trust_env=False, verify=self._protection.client or True
        )
        bound_answers(self._client, _ANSWER_BYTES_MAX)
        bound_duration(self._client, _TIMEOUT_S)
        self._first_refused_s: dict[str, float] = {}

    def send(self, url: str, name: str, configs: Sequence[Mapping[str, str]], key: str | None) -> None:
        """Send to the worker at ``url``, signed if there is a key (base64).

        Returns when the leader has stored them.

        Raises:
            RebalanceExpectedError: The error disappears without action: a rebalance, or a key rotation of up to a
                minute.
            ConnectError: Any other error.
        """
        body = json.dumps([dict(config) for config in configs]).encode()
        # A signature proves more than a password, and reveals nothing to a worker that pretends to be the leader.
        proof = sign(key, body) if key is not None else self._protection.own_headers()
        headers = {"Content-Type": "application/json"} | proof
        target = f"{url.rstrip('/')}/connectors/{quote(name, safe='')}/tasks"
        self._protection.check_target(target, headers)
        try:
            answer = self._client.post(target, content=body, headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ConnectError(f"the leader at {url} does not answer: {text_of(error)}") from None
        if answer.status_code == 403:
            first_s = self._first_refused_s.setdefault(name, self._clock())
            if len(self._first_refused_s) > _REFUSED_MAX:  # names of connectors that no longer exist
                del self._first_refused_s[next(iter(self._first_refused_s))]
            if self._clock() - first_s < _ROTATION_S:
                _log.debug("%s: the leader at %s has another session key; retrying", name, url)
                raise RebalanceExpectedError(f"the leader at {url} has another session key")
        else:
            self._first_refused_s.pop(name, None)
        if answer.status_code in (409, 503):
            raise RebalanceExpectedError(f"the leader at {url} cannot store the tasks now: {_message(answer)}")
        if not answer.is_success:
            raise ConnectError(f"the leader at {url} answered {answer.status_code}: {_message(answer)}")

    def close(self) -> None:
        self._client.close()


def _message(answer: httpx.Response) -> str:
    try:
        return str(answer.json()["message"])[:_MESSAGE_CHARS_MAX]
    except (ValueError, KeyError, TypeError, RecursionError):
        return answer.text[:200]
