"""The two ends of a warm start: *commit* commits its positions, *abort* deletes everything that it wrote.

See :mod:`streams_py.history.bootstrap` for the steps before.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from streams_protocol.types import TopicPartition
from streams_py.errors import BrokerUnavailableError, ConfigError, StreamsError
from streams_py.history.bootstrap import BootstrapCluster, BootstrapPlan, Step
from streams_py.history.bootstrap_topics import differences
from streams_py.ports import OffsetAndMetadata
from streams_py.ports.rights import TOPIC, missing_right


def check_not_started(plan: BootstrapPlan, cluster: BootstrapCluster) -> None:
    """Raise StreamsError when the application runs, or has run since the plan was made.

    The written changelogs are not its state then.
    """
    group, and_now = plan.application_id, "nothing is committed; stop it, run `bootstrap abort`, and start again"
    if plan.step is Step.COMMITTING:
        and_now = _perhaps_committed(group)
    members = cluster.members(group)
    if members:
        raise StreamsError(f"{group} runs ({members[0].client_id}): {and_now}")
    unseen = sorted({topic for topic, *_ in plan.ends} - cluster.partition_counts().keys())
    if unseen:
        raise StreamsError(
            f"{', '.join(unseen)} does not exist, or {missing_right('DESCRIBE', TOPIC, unseen)}"
            + ("" if plan.step is Step.COMMITTING else "; nothing is committed")
        )
    moved = _moved(plan, cluster)
    if moved is not None:
        raise StreamsError(f"{moved} has new records since the changelogs were written, so {group} has run: {and_now}")
    earlier = cluster.committed(group, [TopicPartition(topic, p) for topic, p, *_ in plan.ranges])
    known = {}
    if plan.step is Step.PLANNED:  # in later steps these offsets are deleted
        known = {TopicPartition(topic, p): offset for topic, p, offset in plan.given_up}
    elif plan.step is Step.COMMITTING:  # the broker may have processed the interrupted request
        known = _positions_of(plan)
    if strange := {at: offset for at, offset in earlier.items() if known.get(at) != offset}:
        at = min(strange)
        raise StreamsError(
            f"{group} has committed {at} at {earlier[at]} since the plan was made, so it has run: {and_now}"
        )


def _moved(plan: BootstrapPlan, cluster: BootstrapCluster) -> TopicPartition | None:
    """Return a partition of an internal topic whose end offset has changed since the changelogs were written."""
    wanted = {TopicPartition(topic, p): end for topic, p, end in plan.ends}
    counts = cluster.partition_counts()
    found = cluster.ends([at for at in wanted if at.partition < counts.get(at.topic, 0)])
    return next((at for at, end in sorted(wanted.items()) if found.get(at) != end), None)


def _positions_of(plan: BootstrapPlan) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, p): end for topic, p, end, _ in plan.positions}


def _perhaps_committed(group: str) -> str:
    return (
        "an earlier commit was interrupted, possibly after its request was sent. If the application started at the "
        f"positions of the plan, the warm start of {group} is complete and the plan is no longer needed; if it started "
        "from the beginning, reset it and plan again"
    )


def commit(plan: BootstrapPlan, path: Path, cluster: BootstrapCluster) -> None:
    """Commit the positions and record that in the plan's file ``path``. May be called again.

    Raises:
        ConfigError: the changelogs are not verified.
        StreamsError: the application has run since the plan was made, a topic has changed, or the cluster refuses the
            request. If the cluster has committed none of the positions, the file keeps the step of ``plan``.
    """
    check_not_started(plan, cluster)
    if plan.step not in (Step.VERIFIED, Step.COMMITTING):
        raise ConfigError(plan.next_step())
    if different := differences(plan, cluster, {topic for topic, *_ in plan.ranges}):
        node, rule, _ = different[0]
        raise StreamsError(
            f"{node}: {rule}, so the plan's positions are not valid for it; run `bootstrap abort`, and plan again"
        )
    wanted = {TopicPartition(topic, p): OffsetAndMetadata(end, text) for topic, p, end, text in plan.positions}
    replace(plan, step=Step.COMMITTING).save(path)
    try:
        cluster.commit(plan.application_id, wanted)
    except BrokerUnavailableError:  # the broker may have committed them
        raise
    except StreamsError:
        if not cluster.committed(plan.application_id, list(wanted)).items() & _positions_of(plan).items():
            plan.save(path)
        raise
    replace(plan, step=Step.COMMITTED).save(path)


def abort(plan: BootstrapPlan, cluster: BootstrapCluster) -> list[str]:
    """Delete the internal topics of the plan, and return the names of the topics that the cluster listed.

    The application creates them again. First, offsets are deleted that the application has committed on top of these
    topics, so that it starts from the beginning. A plan that has not started, or is aborted already, deletes nothing:
    existing topics belong to the application then.

    Raises:
        ConfigError: the plan is committed.
        StreamsError: the application runs. Or an interrupted *commit* has committed the positions, or may have done so
            before the application ran.
    """
    if plan.step is Step.COMMITTED:
        raise ConfigError(
            f"the warm start of {plan.application_id} is committed; to start again, reset the application"
        )
    if plan.step in (Step.PLANNED, Step.ABORTED):
        return []
    if plan.step is Step.COMMITTING:
        _check_not_committed(plan, cluster)
    members = cluster.members(plan.application_id)
    if members:
        raise StreamsError(
            f"{plan.application_id} runs ({members[0].client_id}) on top of incomplete changelogs; stop it first"
        )
    cluster.forget(plan.application_id)
    counts = cluster.partition_counts()
    cluster.delete(plan.internal)  # also unlisted topics: the user may lack the right to describe them
    return [topic for topic in plan.internal if topic in counts]


def _check_not_committed(plan: BootstrapPlan, cluster: BootstrapCluster) -> None:
    """Raise StreamsError when the application may have continued from the topics that are to be deleted."""
    group, wanted = plan.application_id, _positions_of(plan)
    found = cluster.committed(group, list(wanted))
    if found and (not found.items() <= wanted.items() or _moved(plan, cluster) is not None):
        raise StreamsError(f"{group} has run: {_perhaps_committed(group)}")
    if found and found == wanted:
        raise StreamsError(
            f"the positions of {group} are committed, but the plan does not show it: run `bootstrap commit` again to "
            "complete it; to start again, reset the application"
        )
