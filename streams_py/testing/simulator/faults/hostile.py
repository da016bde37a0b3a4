"""A hostile or defective member, which sends damaging subscriptions.

It implements enough of the group protocol to be a member. Its subscriptions are one of

* *garbage*: bytes that no decoder accepts, lengths of gigabytes, impossible versions;
* *lies*: a well-formed subscription that claims partitions of other members, another process's identity, tasks that do
  not exist, or impossible offsets.

If it is elected leader, it never answers. That delays the group until the coordinator removes the member. The classic
group protocol cannot prevent it: every client that may join may also lead.
"""

from __future__ import annotations

import random
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from streams_protocol import (
    EARLIEST_PROBEABLE_VERSION,
    LATEST_OFFSET,
    LATEST_SUPPORTED_VERSION,
    SubscriptionInfo,
    encode_subscription_info,
)
from streams_protocol.consumer import Subscription, encode_subscription
from streams_protocol.types import ProcessId, TaskId, TopicPartition
from streams_py.testing.simulator.models.coordinator import JoinReply, Reply, SyncReply
from streams_py.testing.simulator.releases import FUTURE_VERSION

if TYPE_CHECKING:
    from streams_py.testing.simulator.world import World


def garbage_user_data(rng: random.Random, sample: bytes, version: int) -> bytes | None:
    """Return user data that is not a valid SubscriptionInfo, with ``version`` or without a version.

    ``sample``: a valid SubscriptionInfo to damage.
    """
    start = version.to_bytes(4, "big") * (2 if version >= EARLIEST_PROBEABLE_VERSION else 1)
    match rng.randrange(7):
        case 0:
            return None
        case 1:
            return b""
        case 2:
            return sample[: rng.randrange(8, 24)]
        case 3:  # lengths of two thousand million rows
            return start + bytes(16) + b"\x7f\xff\xff\xff" * 4
        case 4:
            return rng.choice((0, -1, -(2**31))).to_bytes(4, "big", signed=True) + rng.randbytes(40)
        case 5:  # negative lengths
            return start + rng.randbytes(16) + b"\xff\xff\xff\xfe" + rng.randbytes(20)
        case _:
            return rng.randbytes(3)


class HostileMember:
    """One hostile member. ``lies``: it sends well-formed false data instead of garbage.

    ``steady``: it does not start a rebalance once it has an assignment.
    """

    def __init__(self, world: World, number: int, *, lies: bool, steady: bool = False) -> None:
        self._world = world
        self._name = f"hostile{number}"
        self._lies = lies
        self._steady = steady
        self._member_id = ""
        self._generation = -1
        self.gone = False
        self.sent = 0

    @property
    def responsive(self) -> bool:
        """Whether it sends heartbeats."""
        return not self.gone

    def start(self) -> None:
        """Join the group."""
        self._join()

    def end(self) -> None:
        """Leave the group."""
        self.gone = True
        self._world.coordinator.leave(self._member_id)

    def told_to_rejoin(self) -> None:
        """Join again after a heartbeat, because the coordinator prepares a rebalance."""
        self._later(self._world.heartbeat_delay_ms(), self._join)

    def _later(self, delay_ms: int, action: object, *args: object) -> None:
        self._world.timeline.after(delay_ms, self._if_there, action, args)

    def _if_there(self, action: object, args: tuple[object, ...]) -> None:
        if not self.gone and callable(action):
            action(*args)

    def _join(self) -> None:
        shape = self._world.shape
        self._world.coordinator.join(
            self,
            self._name,
            self._member_id,
            None,
            self._subscription(),
            session_timeout_ms=shape.session_timeout_ms,
            rebalance_timeout_ms=shape.max_poll_interval_ms,
            reply=lambda reply: self._later(self._world.latency_ms(), self._on_join, reply),
        )

    def _on_join(self, reply: JoinReply) -> None:
        if reply.error is Reply.MEMBER_ID_REQUIRED:
            self._member_id = reply.member_id
            self._world.hostile_ids.add(reply.member_id)
            self._join()
        elif reply.error is not Reply.NONE:
            self._member_id = ""
            self._later(1_000, self._join)
        else:
            self._generation = reply.generation
            if not reply.members:
                self._world.coordinator.sync(
                    self._member_id,
                    self._generation,
                    {},
                    lambda answer: self._later(self._world.latency_ms(), self._on_sync, answer),
                )

    def _on_sync(self, reply: SyncReply) -> None:
        if reply.error is not Reply.NONE:
            self._later(500, self._join)
        elif not self._steady:
            self._later(self._world.rng.randrange(4_000, 15_000), self._join)

    # -- subscriptions -------------------------------------------------------------------------------------------

    def _subscription(self) -> bytes:
        self.sent += 1
        rng = self._world.rng
        topics = tuple(sorted(self._world.shape.metadata.source_topics))
        if not self._lies and not self._steady and rng.random() < 0.1:
            return rng.randbytes(30)
        claims = self._claims() if self._lies else ()
        honest = self._honest()
        sample = encode_subscription_info(honest)
        data = self._lie(honest) if self._lies else garbage_user_data(rng, sample, honest.version)
        generation = rng.choice((-1, self._generation, self._generation + 7)) if self._lies else self._generation
        return encode_subscription(Subscription(topics, data, claims, generation, rng.choice((None, "r0", "r9"))))

    def _honest(self) -> SubscriptionInfo:
        """Return a well-formed subscription in a version that the oldest release can read.

        A leader of that release would treat a newer version as a future member.
        """
        tasks = sorted(self._world.tasks())
        version = min(
            (process.newest for process in self._world.processes if process.alive), default=LATEST_SUPPORTED_VERSION
        )
        return SubscriptionInfo(
            ProcessId(uuid.UUID(int=self._world.rng.getrandbits(128))),
            min(version, LATEST_SUPPORTED_VERSION),
            endpoint="evil:666",
            task_offset_sums=dict.fromkeys(tasks[:3], 5),
        )

    def _claims(self) -> tuple[TopicPartition, ...]:
        rng = self._world.rng
        known = sorted({tp for inputs in self._world.tasks().values() for tp in inputs})
        claimed = rng.sample(known, rng.randint(0, len(known)))
        if rng.random() < 0.3:
            claimed.append(TopicPartition("in", 10_000))
            claimed.append(TopicPartition("no-such-topic", 0))
        return tuple(claimed)

    def _lie(self, info: SubscriptionInfo) -> bytes:
        rng = self._world.rng
        tasks = sorted(self._world.tasks())
        match rng.randrange(5):
            case 0:
                victims = [process.process_id for process in self._world.processes if process.alive]
                info = replace(info, process_id=rng.choice(victims) if victims else info.process_id)
            case 1:
                info = replace(info, task_offset_sums=dict.fromkeys(tasks, LATEST_OFFSET))
            case 2:
                wild = (-(2**63), -5, -4, -3, 0, 2**62, 2**63 - 1)
                info = replace(info, task_offset_sums={task: rng.choice(wild) for task in tasks})
            case 3:
                info = replace(info, task_offset_sums={TaskId(77, 3): 1, TaskId(0, 10**6): -2, TaskId(-1, -1): 4})
            case _:
                info = replace(
                    info,
                    latest_supported_version=rng.choice((LATEST_SUPPORTED_VERSION, FUTURE_VERSION, 2**31 - 1)),
                    endpoint="a:b:c:1",
                )
        return encode_subscription_info(info)
