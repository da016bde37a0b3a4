"""Exactly-once on a real broker: whatever is killed, every record counts once, in order, in output, state and
changelog."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from streams_protocol.types import TopicPartition
from streams_py.testing.broker import Broker
from streams_py.testing.torture import Plan, Torture
from tests.support.broker.kit import Application

pytestmark = [pytest.mark.broker, pytest.mark.timeout(900)]


def outage_of(broker: Broker) -> Callable[[float], None]:
    def outage(seconds: float) -> None:
        broker.kill_node(1)
        time.sleep(seconds)
        broker.start_node(1)

    return outage


def test_every_record_counts_once_while_processes_and_the_broker_are_killed(own_broker: Broker, tmp_path: Path) -> None:
    plan = Plan(
        instances=2,
        partitions=(4,),
        keys=200,
        rate=6_000,
        records_min=300_000,
        faults={"kill": 8, "wipe": 2, "broker": 2},
        pace_s=0.7,
        session_ms=2_500,
        ahead_max=30_000,
        # Shorter than the outages and the kills in them: the broker aborts transactions, and may leave some hanging.
        config={"producer.transaction.timeout.ms": 8_000},
        seed=int(time.time()),
    )
    said: list[str] = []
    torture = Torture(
        plan,
        {"bootstrap.servers": own_broker.bootstrap},
        tmp_path,
        broker=outage_of(own_broker),
        tell=lambda what, written, done: said.append(f"{what} at {done} of {written}") if what else None,
    )
    result = torture.run()
    assert result.ok, "\n".join([f"seed {plan.seed}", *said, *map(str, result.violations), *result.deaths])
    assert result.records >= plan.records_min
    assert result.faults == plan.faults


def test_transaction_of_a_killed_process_without_state_holds_up_nobody(application: Callable[..., Application]) -> None:
    """Commits and timeouts would take minutes, so neither of them ends the transaction."""
    app = application(
        app="trace",
        processing_guarantee="exactly_once_v2",
        commit_interval_ms=300_000,
        producer_transaction_timeout_ms=600_000,
    )
    outputs = [TopicPartition(app.output, number) for number in range(app.partitions)]
    transactions = app.clients.transaction_admin()

    def writers() -> set[int]:
        return {one.producer_id for one in transactions.open_transactions(outputs)}

    a, b = app.start("a"), app.start("b")
    app.await_shared(a, b)
    app.feed([str(number) for number in range(400)])
    app.until(lambda: len(writers()) == 2, "a transaction of each process")
    both = writers()
    b.kill()
    app.until(lambda: both - writers(), "the end of the dead one's transaction")
    app.await_shared(a)
    assert a.state == "RUNNING"
    transactions.close()


@pytest.mark.weekly
@pytest.mark.parametrize("exact", [True, False], ids=["exactly once", "at least once"])
def test_chained_repartition_is_tortured_for_minutes(own_broker: Broker, tmp_path: Path, exact: bool) -> None:
    plan = Plan(exact=exact, rate=1_500, seconds=240, seed=int(time.time()))
    result = Torture(plan, {"bootstrap.servers": own_broker.bootstrap}, tmp_path, broker=outage_of(own_broker)).run()
    assert result.ok, "\n".join([f"seed {plan.seed}", *map(str, result.violations), *result.deaths])
