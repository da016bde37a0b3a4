"""How a warm start ends: its positions are committed, or everything is taken back. See
:mod:`streams_py.history.bootstrap` for the steps before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from streams_protocol.types import TopicPartition
from streams_py.errors import BrokerUnavailableError, ConfigError, StreamsError
from streams_py.history.bootstrap import BootstrapCluster, BootstrapPlan, Step, differences
from streams_py.ports import OffsetAndMetadata
from streams_py.ports.rights import TOPIC, missing_right

__all__ = ["abort", "check_not_started", "commit"]


def check_not_started(plan: BootstrapPlan, cluster: BootstrapCluster) -> None:
    """StreamsError when the application runs, or has run since the plan was made: what was written is not its state."""
    group, and_now = plan.application_id, "nothing is committed; stop it, `bootstrap abort`, and begin again"
    if plan.step is Step.COMMITTING:
        and_now = _perhaps_committed(group)
    members = cluster.members(group)
    if members:
        raise StreamsError(f"{group} runs ({members[0].client_id}): {and_now}")
    unseen = sorted({topic for topic, *_ in plan.ends} - cluster.partition_counts().keys())
    if unseen:
        raise StreamsError(
            f"{', '.join(unseen)} is not there any more, or {missing_right('DESCRIBE', TOPIC, unseen)}"
            + ("" if plan.step is Step.COMMITTING else "; nothing is committed")
        )
    moved = _moved(plan, cluster)
    if moved is not None:
        raise StreamsError(
            f"somebody has written to {moved} since the changelogs were written, so {group} ran: {and_now}"
        )
    earlier = cluster.committed(group, [TopicPartition(topic, p) for topic, p, *_ in plan.ranges])
    known = {}
    if plan.step is Step.PLANNED:  # later they are gone
        known = {TopicPartition(topic, p): offset for topic, p, offset in plan.given_up}
    elif plan.step is Step.COMMITTING:  # the request that broke off may have been obeyed
        known = _positions_of(plan)
    if strange := {at: offset for at, offset in earlier.items() if known.get(at) != offset}:
        at = min(strange)
        raise StreamsError(f"{group} has committed {at} at {earlier[at]} since the plan was made, so it ran: {and_now}")


def _moved(plan: BootstrapPlan, cluster: BootstrapCluster) -> TopicPartition | None:
    """A partition of an internal topic that does not end any more where it ended when the changelogs were written."""
    wanted = {TopicPartition(topic, p): end for topic, p, end in plan.ends}
    counts = cluster.partition_counts()
    found = cluster.ends([at for at in wanted if at.partition < counts.get(at.topic, 0)])
    return next((at for at, end in sorted(wanted.items()) if found.get(at) != end), None)


def _positions_of(plan: BootstrapPlan) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, p): end for topic, p, end, _ in plan.positions}


def _perhaps_committed(group: str) -> str:
    return (
        "an earlier commit broke off, maybe behind its request. If it began at the positions of the plan, the warm "
        f"start of {group} is complete and the plan done with; if it began at the beginning, reset it, and plan again"
    )


def commit(plan: BootstrapPlan, path: Path, cluster: BootstrapCluster) -> None:
    """Commit the positions, if nobody has touched anything since they were verified, and say so in the file ``path``.
    Once more does no harm. ConfigError before they are verified. StreamsError when that is refused; where nothing of it
    is obeyed the plan stays as it is."""
    check_not_started(plan, cluster)
    if plan.step not in (Step.VERIFIED, Step.COMMITTING):
        raise ConfigError(plan.standing())
    if different := differences(plan, cluster, {topic for topic, *_ in plan.ranges}):
        node, rule, _ = different[0]
        raise StreamsError(f"{node}: {rule}, so these are not its positions; `bootstrap abort`, and plan again")
    wanted = {TopicPartition(topic, p): OffsetAndMetadata(end, text) for topic, p, end, text in plan.positions}
    replace(plan, step=Step.COMMITTING).save(path)
    try:
        cluster.commit(plan.application_id, wanted)
    except BrokerUnavailableError:  # it may have obeyed
        raise
    except StreamsError:
        if not cluster.committed(plan.application_id, list(wanted)).items() & _positions_of(plan).items():
            plan.save(path)
        raise
    replace(plan, step=Step.COMMITTED).save(path)


def abort(plan: BootstrapPlan, cluster: BootstrapCluster) -> list[str]:
    """Take back what was written: the internal topics are deleted, which the application makes again; their names. What
    an application has committed that was started on top of them goes first, so that it begins at the beginning. Nothing
    where nothing was begun, or is taken back already: what is there then belongs to the application.

    ConfigError when the plan is committed. StreamsError while the application runs, and when the positions were
    committed, or may have been before it ran, although the plan does not say so.
    """
    if plan.step is Step.COMMITTED:
        raise ConfigError(
            f"the warm start of {plan.application_id} is committed; to begin again, reset the application"
        )
    if plan.step in (Step.PLANNED, Step.ABORTED):
        return []
    if plan.step is Step.COMMITTING:
        _check_not_committed(plan, cluster)
    members = cluster.members(plan.application_id)
    if members:
        raise StreamsError(
            f"{plan.application_id} runs ({members[0].client_id}), on top of changelogs that are not complete; stop it "
            "first"
        )
    cluster.forget(plan.application_id)
    counts = cluster.partition_counts()
    cluster.delete(plan.internal)  # also those that are not seen: somebody may not be allowed to see them
    return [topic for topic in plan.internal if topic in counts]


def _check_not_committed(plan: BootstrapPlan, cluster: BootstrapCluster) -> None:
    """StreamsError when what is to be deleted may be what the application goes on from."""
    group, wanted = plan.application_id, _positions_of(plan)
    found = cluster.committed(group, list(wanted))
    if found and (not found.items() <= wanted.items() or _moved(plan, cluster) is not None):
        raise StreamsError(f"{group} has run: {_perhaps_committed(group)}")
    if found and found == wanted:
        raise StreamsError(
            f"the positions of {group} are committed, only the plan does not say so: `bootstrap commit` once more "
            "completes it; to begin again, reset the application"
        )
