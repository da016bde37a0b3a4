"""What-ifs change a situation: what if a zone had been lost, or the topic had twice the partitions?

A what-if is a text: a chain of operators that are applied from left to right, such as
``lose_zone(zone=b) add_standby(1)``. Each operator is a pure function from one situation to another. Random choices
depend on a seed. The new situation does not have a recorded decision.

==============================  ========================================================================================
``add_clients(n,like=NAME)``    n new instances without state, with the tags, rack and threads of NAME (the beginning of
                                a client's name; without it, of each client in turn)
``remove_clients(n)``           n random instances leave
``lose_zone(TAG=VALUE)``        every instance with that tag (or ``rack=VALUE``) leaves
``restart_all(keep_state=B)``   all instances restart together, with their state directories (true) or without
``rolling(n)``                  the first n instances by name restart, with their state, while the others run
``scale_partitions(SUB,xF)``    a sub-topology has F times as many partitions, the new ones empty
``add_standby(n)``              ``num.standby.replicas`` is n more
``drop_state(share=S)``         each copy that is not running is lost with probability S
``lag_storm(p99=N)``            copies fall behind by random, exponential lags; 99 % of them by less than N records
``tags(KEY=a,b,c)``             instances are tagged KEY=a, b, c, a, ... by name (``rack=`` sets the rack)
==============================  ========================================================================================
"""

from __future__ import annotations

import math
import random
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from streams_protocol import LATEST_OFFSET, UNKNOWN_OFFSET_SUM
from streams_protocol.types import TaskId
from streams_py.backtest.inputs import ReplayClient, ReplayInput
from streams_py.backtest.situation import ends_of
from streams_py.errors import ConfigError
from streams_py.events.model import Consumer, OffsetSums, Racks, SubtopologySlice

_CALL: Final = re.compile(r"\s*[|;,]?\s*([a-z_]+)\(([^()]*)\)")
_STANDBYS: Final = "num.standby.replicas"
_RACK: Final = "rack"
_FACTOR_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class _Call:
    """One operator with its arguments: positional arguments in ``plain``, in order."""

    name: str
    plain: tuple[str, ...]
    named: Mapping[str, str]

    def refused(self, why: str) -> ConfigError:
        return ConfigError(f"what-if {self.name}: {why}")

    def whole(self, text: str, what: str, least: int = 1) -> int:
        try:
            value = float(text)
        except ValueError:
            raise self.refused(f"{what} must be a number, got {text!r}") from None
        if value != int(value) or value < least:
            raise self.refused(f"{what} must be a whole number of at least {least}, got {text}")
        return int(value)

    def only(self, *names: str, plain: int = 0) -> None:
        unknown = next((name for name in self.named if name not in names), None)
        if unknown is not None:
            raise self.refused(f"unknown argument {unknown!r}; {_usage(self.name)}")
        if len(self.plain) != plain:
            raise self.refused(
                f"expected {plain} positional argument{'s' * (plain != 1)}, got {len(self.plain)}; {_usage(self.name)}"
            )


def apply_what_if(replay: ReplayInput, text: str, *, seed: int) -> ReplayInput:
    """Apply all operators in ``text`` to a situation. An empty text returns it unchanged.

    Raises:
        ConfigError: the text is not a what-if, or does not fit the situation (no client left, an unknown name).
    """
    source = random.Random(seed)
    for call in _calls(text):
        replay = replace(OPERATORS[call.name](replay, call, source), decision=None, text=None)
    return replay


def check_what_if(text: str) -> None:
    """Raise ConfigError when ``text`` is not a what-if. Whether it fits a situation is checked when it is applied."""
    _calls(text)


def _calls(text: str) -> list[_Call]:
    calls = []
    at = 0
    while text[at:].strip():
        match = _CALL.match(text, at)
        if match is None:
            raise ConfigError(f"what-if {text!r} is not valid at {text[at:].strip()[:40]!r}; {_usage()}")
        name, at = match[1], match.end()
        if name not in OPERATORS:
            raise ConfigError(f"unknown what-if {name!r}; {_usage()}")
        calls.append(_parsed(name, match[2]))
    return calls


def _parsed(name: str, arguments: str) -> _Call:
    plain: list[str] = []
    named: dict[str, str] = {}
    last = None
    for part in filter(None, (part.strip() for part in arguments.split(","))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if equals:
            named[key] = value
            last = key
        elif last is not None:
            named[last] += f",{part}"  # a list: zone=a,b,c
        else:
            plain.append(part)
    return _Call(name, tuple(plain), named)


def _usage(name: str = "") -> str:
    forms = {
        "add_clients": "add_clients(3,like=NAME)",
        "remove_clients": "remove_clients(2)",
        "lose_zone": "lose_zone(zone=b)",
        "restart_all": "restart_all(keep_state=true)",
        "rolling": "rolling(1)",
        "scale_partitions": "scale_partitions(0,x2)",
        "add_standby": "add_standby(1)",
        "drop_state": "drop_state(share=0.1)",
        "lag_storm": "lag_storm(p99=1e7)",
        "tags": "tags(zone=a,b,c)",
    }
    return f"write {forms[name]}" if name else f"use {', '.join(forms.values())}, one after the other"


# -- clients -----------------------------------------------------------------------------------------------------------


def _add_clients(replay: ReplayInput, call: _Call, _source: random.Random) -> ReplayInput:
    call.only("like", plain=1)
    count = call.whole(call.plain[0], "the number of clients")
    models = list(replay.clients)
    like = call.named.get("like")
    if like is not None:
        models = [client for client in models if client.client.startswith(like)][:1]
        if not models:
            raise call.refused(f"no client has a name that begins with {like!r}")
    taken = {client.client for client in replay.clients}
    added: list[ReplayClient] = []
    number = 0
    while len(added) < count:
        number += 1
        name = str(uuid.uuid5(uuid.NAMESPACE_OID, f"new client {number}"))
        if name not in taken:
            model = models[len(added) % len(models)]
            consumers = [
                Consumer(f"new-{number}-{n}", c.version, c.supported, ()) for n, c in enumerate(model.consumers)
            ]
            added.append(ReplayClient(name, None, model.rack, model.tags, consumers, (), (), OffsetSums((), ())))
    return _with_clients(replay, [*replay.clients, *added], call)


def _remove_clients(replay: ReplayInput, call: _Call, source: random.Random) -> ReplayInput:
    call.only(plain=1)
    count = call.whole(call.plain[0], "the number of clients")
    if count >= len(replay.clients):
        raise call.refused(f"the group has {len(replay.clients)} clients, and one must stay")
    names = sorted(client.client for client in replay.clients)
    gone = set(source.sample(names, count))
    return _with_clients(replay, [client for client in replay.clients if client.client not in gone], call)


def _lose_zone(replay: ReplayInput, call: _Call, _source: random.Random) -> ReplayInput:
    if call.plain or len(call.named) != 1:
        raise call.refused(_usage("lose_zone"))
    ((key, value),) = call.named.items()
    if not any(_tag(client, key) == value for client in replay.clients):
        raise call.refused(f"no client has {key}={value}")
    left = [client for client in replay.clients if _tag(client, key) != value]
    return _with_clients(replay, left, call)


def _tag(client: ReplayClient, key: str) -> str | None:
    return client.rack if key == _RACK and _RACK not in client.tags else client.tags.get(key)


def _tags(replay: ReplayInput, call: _Call, _source: random.Random) -> ReplayInput:
    if call.plain or not call.named:
        raise call.refused(_usage("tags"))
    clients = sorted(replay.clients, key=lambda client: client.client)
    for key, text in call.named.items():
        values = [value.strip() for value in text.split(",")]
        tagged = []
        for number, client in enumerate(clients):
            value = values[number % len(values)]
            change = replace(client, rack=value) if key == _RACK else replace(client, tags={**client.tags, key: value})
            tagged.append(change)
        clients = tagged
    return _with_clients(replay, clients, call)


def _with_clients(replay: ReplayInput, clients: Iterable[ReplayClient], call: _Call) -> ReplayInput:
    left = sorted(clients, key=lambda client: client.client)
    if not left:
        raise call.refused("no client is left")
    return replace(replay, clients=left)


# -- restarts and state ------------------------------------------------------------------------------------------------


def _restart_all(replay: ReplayInput, call: _Call, _source: random.Random) -> ReplayInput:
    call.only("keep_state")
    text = call.named.get("keep_state", "true").lower()
    if text not in ("true", "false"):
        raise call.refused(f"keep_state must be true or false, got {text!r}")
    return _restarted(replay, {client.client for client in replay.clients}, keep_state=text == "true")


def _rolling(replay: ReplayInput, call: _Call, _source: random.Random) -> ReplayInput:
    call.only(plain=1)
    count = call.whole(call.plain[0], "the number of clients")
    names = sorted(client.client for client in replay.clients)
    if count > len(names):
        raise call.refused(f"the group has only {len(names)} clients")
    return _restarted(replay, set(names[:count]), keep_state=True)


def _restarted(replay: ReplayInput, names: Collection[str], *, keep_state: bool) -> ReplayInput:
    ends = ends_of(replay.subs)
    clients = []
    for client in replay.clients:
        if client.client not in names:
            clients.append(client)
            continue
        sums: dict[TaskId, int] = {}
        if keep_state:
            for task, value in zip(client.sums.tasks, client.sums.v, strict=True):
                if task in ends:
                    sums[task] = ends[task] if value == LATEST_OFFSET else value
        clients.append(_holding(replace(client, consumers=_owning_nothing(client), prev_active=()), sums))
    return replace(replay, clients=clients)


def _owning_nothing(client: ReplayClient) -> list[Consumer]:
    return [replace(consumer, owned=()) for consumer in client.consumers]


def _holding(client: ReplayClient, sums: Mapping[TaskId, int]) -> ReplayClient:
    tasks = tuple(sorted(sums))
    active = frozenset(client.prev_active)
    return replace(
        client,
        sums=OffsetSums(tasks, tuple(sums[task] for task in tasks)),
        prev_standby=tuple(task for task in tasks if task not in active),
    )


def _drop_state(replay: ReplayInput, call: _Call, source: random.Random) -> ReplayInput:
    call.only("share")
    share = _number(call, "share")
    if not 0 <= share <= 1:
        raise call.refused(f"share must be between 0 and 1, got {share:g}")
    return _each_copy(replay, lambda value, _end: None if source.random() < share else value)


def _lag_storm(replay: ReplayInput, call: _Call, source: random.Random) -> ReplayInput:
    call.only("p99")
    p99 = _number(call, "p99")
    if p99 <= 0:
        raise call.refused("p99 must be more than 0 records")
    rate = -math.log(0.01) / p99

    def behind(value: int, end: int) -> int:
        return (
            value if UNKNOWN_OFFSET_SUM in (value, end) else max(0, min(value, end) - round(source.expovariate(rate)))
        )

    return _each_copy(replay, behind)


def _each_copy(replay: ReplayInput, change: Callable[[int, int], int | None]) -> ReplayInput:
    """Change every copy that is not running, in the order of clients and tasks. None removes the copy."""
    ends = ends_of(replay.subs)
    clients = []
    for client in sorted(replay.clients, key=lambda client: client.client):
        sums: dict[TaskId, int] = {}
        for task, value in sorted(zip(client.sums.tasks, client.sums.v, strict=True)):
            changed = value if value == LATEST_OFFSET or task not in ends else change(value, ends[task])
            if changed is not None:
                sums[task] = changed
        clients.append(_holding(client, sums))
    return replace(replay, clients=clients)


def _number(call: _Call, name: str) -> float:
    text = call.named.get(name)
    if text is None:
        raise call.refused(_usage(call.name))
    try:
        return float(text)
    except ValueError:
        raise call.refused(f"{name} must be a number, got {text!r}") from None


# -- tasks and settings ------------------------------------------------------------------------------------------------


def _scale_partitions(replay: ReplayInput, call: _Call, _source: random.Random) -> ReplayInput:
    call.only(plain=2)
    sub, factor_text = call.plain
    if not any(piece.sub == sub for piece in replay.subs):
        raise call.refused(f"sub-topology {sub!r} does not exist")
    if not factor_text.startswith("x"):
        raise call.refused(f"the factor must look like x2, got {factor_text!r}")
    factor = call.whole(factor_text[1:], "the factor")
    if factor > _FACTOR_MAX:
        raise call.refused(f"the factor must be at most {_FACTOR_MAX}, got {factor}")
    subs = [_scaled(piece, factor) if piece.sub == sub else piece for piece in replay.subs]
    return replace(replay, subs=subs)


def _scaled(piece: SubtopologySlice, factor: int) -> SubtopologySlice:
    more = piece.count * (factor - 1)
    racks = piece.racks
    if racks is not None:
        racks = Racks(racks.names, {topic: [*of, *([*of] * (factor - 1))] for topic, of in racks.p.items()})
    return replace(
        piece,
        count=piece.count + more,
        end=None if piece.end is None else (*piece.end, *(0,) * more),
        weight=None,
        racks=racks,
    )


def _add_standby(replay: ReplayInput, call: _Call, _source: random.Random) -> ReplayInput:
    call.only(plain=1)
    more = call.whole(call.plain[0], "the number of standbys")
    return replace(replay, configs={**replay.configs, _STANDBYS: int(replay.configs.get(_STANDBYS) or 0) + more})


OPERATORS: Final[Mapping[str, Callable[[ReplayInput, _Call, random.Random], ReplayInput]]] = {
    "add_clients": _add_clients,
    "remove_clients": _remove_clients,
    "lose_zone": _lose_zone,
    "restart_all": _restart_all,
    "rolling": _rolling,
    "scale_partitions": _scale_partitions,
    "add_standby": _add_standby,
    "drop_state": _drop_state,
    "lag_storm": _lag_storm,
    "tags": _tags,
}
