"""The conversion of one assign step of a group leader to records: the header, and the assembly of all parts.

:mod:`streams_py.events.watch` records the references, :mod:`streams_py.events.contents` creates the parts that follow
the header.
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from typing import Final

from streams_protocol import decode_assignment_info
from streams_protocol.types import TaskId
from streams_py.assignment.assignors.registry import assignor_name
from streams_py.assignment.configs import AssignmentConfigs
from streams_py.config.secrets import redact
from streams_py.events.codec import EventRecord, encode_event
from streams_py.events.contents import Described, clients_of, slices_of
from streams_py.events.draft import Draft, Importance
from streams_py.events.model import (
    Assignor,
    ClientPart,
    Envelope,
    ErrorInfo,
    FollowUp,
    RebalanceHeader,
    SubtopologySlice,
    Versions,
)
from streams_py.events.parts import cut_rebalance
from streams_py.events.reasons import Reasons
from streams_py.leader.effects import FailAssign, PublishAssignments
from streams_py.leader.observation import Decided, Gathered
from streams_py.leader.settings import LeaderSettings
from streams_py.leader.steps.internal import internal_assignor, uses_custom_assignor
from streams_py.ports import MemberSubscription

_CONFIG_KEYS: Final = {
    "acceptable.recovery.lag": "acceptable_recovery_lag",
    "max.warmup.replicas": "max_warmup_replicas",
    "num.standby.replicas": "num_standby_replicas",
    "probing.rebalance.interval.ms": "probing_rebalance_interval_ms",
    "rack.aware.assignment.non_overlap_cost": "rack_aware_non_overlap_cost",
    "rack.aware.assignment.strategy": "rack_aware_assignment_strategy",
    "rack.aware.assignment.tags": "rack_aware_assignment_tags",
    "rack.aware.assignment.traffic_cost": "rack_aware_traffic_cost",
}
"""The settings in a record: those that an assignor gets. No other setting is ever recorded."""


def rebalance_id(group: str, leader_member: str, generation: int, attempt: int) -> str:
    """Return the id of an assign step: leader (hashed with the group), generation, and number of the attempt."""
    leader = hashlib.sha256(f"{group}\0{leader_member}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{leader}-{max(generation, 0):012d}-{attempt}"


def library_name() -> str:
    """Return ``kafka-streams-py`` and its version."""
    try:
        return f"kafka-streams-py {metadata.version('kafka-streams-py')}"
    except metadata.PackageNotFoundError:
        return "kafka-streams-py"


@dataclass(slots=True)
class PreviousStep:
    """The data of an assign step with which the leader's next step is compared. Only the emitter's thread uses it."""

    generation: int = -1
    topics_of: Mapping[str, frozenset[str]] = field(default_factory=dict)
    tasks: frozenset[TaskId] | None = None
    withheld: int = 0
    followup_ms: int | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class RebalanceDraft(Draft):
    """An assign step, recorded as references. It is complete when outcome, generation and attempt are set."""

    group: str
    settings: LeaderSettings
    members: Mapping[str, MemberSubscription]
    previous: PreviousStep
    facts: Gathered | None = None
    described: Described = field(default_factory=dict)
    decision: Decided | None = None
    duration_us: dict[str, int] = field(default_factory=dict)
    generation: int = field(init=False)
    leader_member: str = field(init=False)
    attempt: int = field(init=False)
    outcome: PublishAssignments | FailAssign | BaseException = field(init=False)
    assignor: object = None

    @property
    def kind(self) -> str:
        """The kind of the header."""
        return RebalanceHeader.KIND

    @property
    def importance(self) -> Importance:
        """The highest importance: rebalances are dropped last."""
        return Importance.REBALANCE

    @property
    def bytes_estimate(self) -> int:
        """Estimated size in bytes, by the number of tasks and members."""
        tasks = len(self.facts.table.tasks) if self.facts is not None else 0
        return 2_000 + 100 * tasks + 2_000 * len(self.members)

    def records(self, envelope: Envelope) -> Sequence[EventRecord]:
        """Return the records: header, tasks, clients."""
        facts, decision = self.facts, self.decision
        slices: list[SubtopologySlice] = [] if facts is None else slices_of(facts, self.described)
        clients: list[ClientPart] = []
        if facts is not None and decision is not None and isinstance(self.outcome, PublishAssignments):
            is_custom = uses_custom_assignor(self.settings)
            reasons = Reasons(facts, decision, is_custom=is_custom, assignor=self.assignor)
            clients = clients_of(
                self.id, facts, decision, self.outcome.assignments, reasons, future=self.settings.future_process_id
            )
        events = cut_rebalance(envelope, self._header(envelope, clients), slices, clients)
        return [encode_event(event) for event in events]

    @property
    def id(self) -> str:
        """The rebalance id."""
        return rebalance_id(self.group, self.leader_member, self.generation, self.attempt)

    def _header(self, envelope: Envelope, clients: Sequence[ClientPart]) -> RebalanceHeader:
        facts, decision = self.facts, self.decision
        outcome, error = _outcome(self.outcome)
        counts = _counts(facts, clients)
        deadlines = decision.deadlines if decision is not None else {}
        header = RebalanceHeader(
            rebalance_id=self.id,
            parts=1,
            generation=self.generation,
            leader_member=self.leader_member,
            trigger=self._trigger(envelope.at_ms),
            assignor=self._assignor(),
            configs=recorded_configs(self.settings.assignment),
            versions=None
            if facts is None
            else Versions(
                facts.group.min_received_version,
                facts.group.min_supported_version,
                facts.group.future_version is not None,
            ),
            lag_ok=facts is not None and facts.ends.failed is None,
            counts=counts,
            duration_us=self.duration_us,
            followups=[FollowUp(str(process), deadlines[process]) for process in sorted(deadlines)],
            outcome=outcome,
            error=error,
            library=library_name(),
        )
        self._remember(counts["withheld"], min(deadlines.values(), default=None))
        return header

    def _assignor(self) -> Assignor:
        settings = self.settings
        if uses_custom_assignor(settings):
            name = assignor_name(settings.task_assignor)
            package = sys.modules.get(name.partition(":")[0].partition(".")[0])
            version = getattr(package, "__version__", None)
            return Assignor(name, version if isinstance(version, str) else None, custom=True)
        lags_known = self.facts is None or self.facts.ends.failed is None
        try:
            chosen = type(internal_assignor(settings, lags_known=lags_known))
        except Exception:  # an unknown name; the outcome has the error
            return Assignor(str(settings.internal_assignor), None, custom=False)
        return Assignor(f"{chosen.__module__}:{chosen.__qualname__}", library_name().rpartition(" ")[2], custom=False)

    # -- the trigger of the rebalance ----------------------------------------------------------------------------------

    def _trigger(self, now_ms: int) -> list[str]:
        previous = self.previous
        if previous.generation != self.generation - 1 and previous.generation != self.generation:
            return self._trigger_of_new_leader() if previous.generation < 0 else ["unknown"]
        found = []
        before, now = previous.topics_of, self._topics_of()
        if now.keys() - before.keys():
            found.append("member_joined")
        if before.keys() - now.keys():
            found.append("member_left")
        if (
            previous.tasks is not None
            and self.facts is not None
            and previous.tasks != frozenset(self.facts.table.tasks)
        ):
            found.append("metadata_changed")
        if previous.followup_ms is not None and now_ms >= previous.followup_ms:
            found.append("followup")
        if previous.withheld:
            found.append("revocation_done")
        if any(before[member] != topics for member, topics in now.items() if member in before):
            found.append("subscription_changed")
        if not found and previous.followup_ms is not None:
            found.append("followup")  # a member whose copies have caught up does not wait for that instant
        return found or ["unknown"]

    def _trigger_of_new_leader(self) -> list[str]:
        """A coordinator keeps a leader for as long as it is a member. So the former one has left, if there was one."""
        members = self.members
        new = {name for name, said in members.items() if said.generation < 0 and not said.owned}
        nothing_reported = self.facts is not None and not any(c.sums for c in self.facts.group.clients.values())
        if not any(said.owned for said in members.values()) and (nothing_reported or new == members.keys()):
            return ["first"]
        if self.leader_member in new:  # the process of a static member that led the group was restarted
            return ["member_joined"]
        return ["member_joined", "member_left"] if new else ["member_left"]

    def _topics_of(self) -> dict[str, frozenset[str]]:
        return {member: frozenset(subscription.topics) for member, subscription in self.members.items()}

    def _remember(self, withheld: int, followup_ms: int | None) -> None:
        previous = self.previous
        previous.generation = self.generation
        previous.topics_of = self._topics_of()
        previous.tasks = frozenset(self.facts.table.tasks) if self.facts is not None else None
        previous.withheld = withheld
        previous.followup_ms = followup_ms


def recorded_configs(configs: AssignmentConfigs) -> dict[str, object]:
    """Return the settings that an assignor gets, by Kafka's keys, as stored in a record."""
    found = {key: getattr(configs, name) for key, name in _CONFIG_KEYS.items()}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in found.items()}


def _outcome(outcome: PublishAssignments | FailAssign | BaseException) -> tuple[str, ErrorInfo | None]:
    match outcome:
        case PublishAssignments(_, _, None):
            return "ok", None
        case PublishAssignments(assignments, _, error):
            codes = [decode_assignment_info(a.user_data).error_code for a in assignments.values()]
            return "error_assignment", _error(max(codes, default=0), error)
        case FailAssign(error):
            return ("retriable" if getattr(error, "retriable", False) else "raised"), _error(0, error)
        case BaseException():
            return ("retriable" if getattr(outcome, "retriable", False) else "raised"), _error(0, outcome)
    raise AssertionError(outcome)


def _error(code: int, error: BaseException | None) -> ErrorInfo:
    return ErrorInfo(code, type(error).__name__, redact(str(error)))


def _counts(facts: Gathered | None, clients: Sequence[ClientPart]) -> dict[str, int]:
    counts = dict.fromkeys(
        ("clients", "consumers", "tasks", "stateful", "active", "standby", "warmup", "withheld", "moved"), 0
    )
    if facts is not None:
        counts["clients"] = len(facts.group.clients)
        counts["consumers"] = len(facts.group.members)
        counts["tasks"] = len(facts.table.tasks)
        counts["stateful"] = sum(bool(facts.table.stores.get(task.subtopology)) for task in facts.table.tasks)
    before = Counter(task for client in clients for task in client.prev_active)
    for client in clients:
        counts["active"] += len(client.active)
        counts["standby"] += len(client.standby)
        counts["warmup"] += len(client.warmup)
        counts["withheld"] += sum(len(thread.withheld) for thread in client.threads)
        mine = frozenset(client.prev_active)
        counts["moved"] += sum(task not in mine and before[task] > 0 for task in client.active)
    return counts
