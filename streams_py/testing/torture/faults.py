"""Faults of a run: injected into instances, their connections and disks, and the broker."""

from __future__ import annotations

import errno
import os
import random
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol

from streams_py.testing.torture.processes import Instance

FAULTS: Final[Mapping[str, float]] = {
    "kill": 2,
    "wipe": 1,
    "restart": 1,
    "pause": 1,
    "stutter": 1,
    "cut": 1,
    "delay": 1,
    "stall": 1,
    "full": 1,
    "login": 0.5,
    "broker": 1,
    "outage": 0.2,
}
"""Kinds of faults, with the weight of each in the random choice.

* ``kill``: SIGKILL. ``wipe``: SIGKILL and loss of the state directory. ``restart``: a clean restart.
* ``pause``: SIGSTOP until the session has expired. ``stutter``: SIGSTOP for a moment.
* ``cut``: all connections are closed. ``delay``: they are slow for some seconds. ``stall``: they stay open, but no data
  arrives. Proxies do this, which cannot read TLS.
* ``full``: a full disk. Needs a :class:`SmallDisk`.
* ``login``: the login is refused for some seconds, and the connections of all instances but the first are cut. Needs a
  login that can be removed.
* ``broker``: SIGKILL of the broker and an outage of some seconds. ``outage``: the same for 40 s. They need a broker
  that may be killed.
"""

_STOPPING: Final = frozenset({"kill", "wipe", "restart"})
"""Faults that stop a process."""
_OUTAGE_S: Final = 40
CLOSE_S: Final = 60
_STARTUP_S: Final = 60
_CHECK_S: Final = 0.2


class Login(Protocol):
    """The login of the instances, which can be removed and restored."""

    @property
    def address(self) -> str:
        """Address of the listener that requires the login, ``host:port``."""

    @property
    def settings(self) -> Mapping[str, str]:
        """Client settings for the login."""

    @property
    def refusal(self) -> str:
        """Part of the error with which an instance stops if the login is refused."""

    def remove_user(self) -> None: ...
    def restore_user(self) -> None: ...


class Faults:
    """Injects faults into instances.

    The first of several instances gets no fault that stops a process, so that its memory use can be watched. Only an
    instance with a separate disk gets a full disk.

    Args:
        draw: Source of all random choices.
        instances: All instances of the run.
        session_ms: Session timeout of the instances.
        rest: Waits for a time in seconds, and restarts stopped instances meanwhile.
        broker: Kills the broker and starts it after a time in seconds; None if the broker may not be killed.
        login: The login of the instances; None if it cannot be removed.
    """

    def __init__(
        self,
        draw: random.Random,
        instances: Sequence[Instance],
        *,
        session_ms: int,
        rest: Callable[[float], None],
        broker: Callable[[float], None] | None,
        login: Login | None,
    ) -> None:
        self._draw = draw
        self._instances = instances
        self._stoppable = instances[1:] or instances
        self._session_s = session_ms / 1000
        self._rest = rest
        self._broker = broker
        self._login = login

    @property
    def possible(self) -> Collection[str]:
        """Kinds of faults that are possible in this run."""
        proxies = all(instance.has_proxy for instance in self._instances)
        needs = {
            **dict.fromkeys(("cut", "delay", "stall"), proxies),
            **dict.fromkeys(("broker", "outage"), self._broker),
            "full": self._small_disks,
            "login": self._login,
        }
        return [kind for kind in FAULTS if needs.get(kind, True)]

    @property
    def _small_disks(self) -> list[Instance]:
        return [instance for instance in self._instances if instance.disk is not None]

    def draw(self) -> str:
        """Choose one of the possible faults at random, by weight."""
        kinds = list(self.possible)
        return self._draw.choices(kinds, [FAULTS[kind] for kind in kinds])[0]

    def inject(self, kind: str, tell: Callable[[str], None]) -> None:
        """Inject a fault, and undo it if it has to be undone. ``tell`` is called with a text that names the target."""
        if kind in ("broker", "outage") and self._broker is not None:
            tell(kind)
            self._broker(_OUTAGE_S if kind == "outage" else self._draw.uniform(1, 6))
            return
        if kind == "login" and self._login is not None:
            tell(kind)
            self._lose_login(self._login)
            return
        among = self._small_disks if kind == "full" else self._stoppable if kind in _STOPPING else self._instances
        instance = self._draw.choice(among)
        tell(f"{kind} {instance.name}")
        match kind:
            case "kill" | "wipe":
                instance.kill()
                self._rest(self._draw.uniform(0, 2))
                if kind == "wipe":
                    instance.forget_state()
                instance.start()
            case "restart":
                instance.close(CLOSE_S)
                instance.start()
            case "pause" | "stutter":
                instance.send(signal.SIGSTOP)
                beyond_s = self._session_s + self._draw.uniform(1, 4)
                self._rest(beyond_s if kind == "pause" else self._draw.uniform(0.2, 2))
                instance.send(signal.SIGCONT)
            case "cut":
                instance.proxy.cut()
            case "delay":
                instance.proxy.delay(self._draw.uniform(0.02, 0.5))
                self._rest(self._draw.uniform(2, 8))
                instance.proxy.delay(0)
            case "stall":
                instance.proxy.stall(True)
                self._rest(self._draw.uniform(0.5, 1.5 * self._session_s))
                instance.proxy.stall(False)
            case "full":
                self._fill(instance)

    def _fill(self, instance: Instance) -> None:
        """Make the disk full, kill and start the instance, and wait until it has failed.

        It is killed first, because it may continue for a while with space that its files have reserved. But it cannot
        start on a full disk.
        """
        assert instance.disk is not None
        expected = os.strerror(errno.ENOSPC)
        _expect_failure([instance], expected)
        instance.disk.fill()
        self._rest(self._draw.uniform(1, 5))
        instance.kill()
        instance.start()
        _expect_failure([instance], expected)
        until_s = time.monotonic() + _STARTUP_S
        while not instance.has_died and time.monotonic() < until_s:
            self._rest(_CHECK_S)
        instance.disk.clear()
        instance.stays_down = False

    def _lose_login(self, login: Login) -> None:
        _expect_failure(self._instances, login.refusal)
        login.remove_user()
        for instance in self._stoppable:
            instance.proxy.cut()
        self._rest(self._draw.uniform(2, 8))
        login.restore_user()
        for instance in self._instances:
            instance.stays_down = False


def _expect_failure(instances: Sequence[Instance], expected: str) -> None:
    for instance in instances:
        instance.expected_error = expected
        instance.stays_down = True
