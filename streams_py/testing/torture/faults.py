"""What is done to the instances of a run, to their connections and disks, and to the broker."""

from __future__ import annotations

import errno
import os
import random
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol

from streams_py.testing.torture.processes import Instance

__all__ = ["CLOSE_S", "FAULTS", "Faults", "Login"]

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
"""How often each is drawn, beside the others. SIGKILL; the same, and the state directory is gone; a clean restart.
SIGSTOP until the session is over; SIGSTOP for a moment. All connections cut; slow for some seconds; open, and nothing
arrives: by proxies, which cannot look into TLS. A full disk, which needs one that may be filled. A login that is
refused for some seconds, with the connections of all but the first instance cut: it needs one that can be lost. A
SIGKILL of the broker and an outage of some seconds; one of 40 s: they need a broker that may be killed."""

_ENDING: Final = frozenset({"kill", "wipe", "restart"})
"""They end a process."""
_OUTAGE_S: Final = 40
CLOSE_S: Final = 60
_BEGINNING_S: Final = 60
_LOOK_S: Final = 0.2


class Login(Protocol):
    """How instances log in, which can be lost."""

    @property
    def door(self) -> str:
        """Where they do, ``host:port``."""

    @property
    def keys(self) -> Mapping[str, str]:
        """Kafka's keys for it."""

    @property
    def refusal(self) -> str:
        """What an instance says that ends because it is refused."""

    def lose(self) -> None: ...
    def restore(self) -> None: ...


class Faults:
    """Strikes instances, drawn like everything else with ``draw``. ``rest`` lets time go by and looks after instances.
    The first of several instances is spared from what ends a process, so that it can be watched; the one with a disk of
    its own is the one whose disk is filled."""

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
        self._mortal = instances[1:] or instances
        self._session_s = session_ms / 1000
        self._rest = rest
        self._broker = broker
        self._login = login

    @property
    def possible(self) -> Collection[str]:
        """Those that can be had here."""
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
        """Any of those that are possible."""
        kinds = list(self.possible)
        return self._draw.choices(kinds, [FAULTS[kind] for kind in kinds])[0]

    def strike(self, kind: str, tell: Callable[[str], None]) -> None:
        """Do it, and undo what does not pass by itself. ``tell`` hears whom it hits."""
        if kind in ("broker", "outage") and self._broker is not None:
            tell(kind)
            self._broker(_OUTAGE_S if kind == "outage" else self._draw.uniform(1, 6))
            return
        if kind == "login" and self._login is not None:
            tell(kind)
            self._lose_login(self._login)
            return
        among = self._small_disks if kind == "full" else self._mortal if kind in _ENDING else self._instances
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
        """It may live on for a while with what its files have reserved; but nobody begins on a full disk."""
        assert instance.disk is not None
        words = os.strerror(errno.ENOSPC)
        _let_suffer([instance], words)
        instance.disk.fill()
        self._rest(self._draw.uniform(1, 5))
        instance.kill()
        instance.start()
        _let_suffer([instance], words)
        until_s = time.monotonic() + _BEGINNING_S
        while not instance.has_died and time.monotonic() < until_s:
            self._rest(_LOOK_S)
        instance.disk.clear()
        instance.is_suffering = False

    def _lose_login(self, login: Login) -> None:
        _let_suffer(self._instances, login.refusal)
        login.lose()
        for instance in self._mortal:
            instance.proxy.cut()
        self._rest(self._draw.uniform(2, 8))
        login.restore()
        for instance in self._instances:
            instance.is_suffering = False


def _let_suffer(instances: Sequence[Instance], words: str) -> None:
    for instance in instances:
        instance.may_end_with = words
        instance.is_suffering = True
