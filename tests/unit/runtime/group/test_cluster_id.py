"""The id of the cluster: requested until a broker has answered, and then never again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from streams_py.errors import BrokerUnavailableError
from streams_py.ports import Admin
from streams_py.runtime.group.cluster_id import ClusterId
from tests.support.runtime.world import Steps, World, counting, task, tp


class Cluster:
    def __init__(self, *answers: str | Exception | None) -> None:
        self._answers: Iterator[str | Exception | None] = iter(answers)
        self.requests = 0

    def cluster_id(self) -> str | None:
        self.requests += 1
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize("answer", ["the-id", None])
def test_id_is_requested_until_a_broker_answers_and_then_known(answer: str | None) -> None:
    cluster = Cluster(BrokerUnavailableError("away"), answer)
    cluster_id = ClusterId(cast("Admin", cluster))
    with pytest.raises(BrokerUnavailableError):
        cluster_id.get()
    assert [cluster_id.get(), cluster_id.get()] == [answer, answer]
    assert cluster.requests == 2


def test_threads_that_need_the_id_at_once_share_one_request() -> None:
    cluster = Cluster("the-id")
    cluster_id = ClusterId(cast("Admin", cluster))
    found: list[str | None] = []
    threads = [threading.Thread(target=lambda: found.append(cluster_id.get())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (found, cluster.requests) == (["the-id"] * 4, 1)


def test_a_start_requests_the_id_once_for_the_state_and_for_the_record_of_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(**{"in": 1, "out": 1, "app-counts-changelog": 1})
    requests: list[None] = []
    make = world.admin

    def admin() -> Admin:
        made = make()
        request = made.cluster_id
        monkeypatch.setattr(made, "cluster_id", lambda: requests.append(None) or request())  # type: ignore[func-returns-value]
        return made

    monkeypatch.setattr(world, "admin", admin)
    steps = Steps(world, counting(), tmp_path, dsl_store_suppliers_class="rocksDB")
    steps.run({task("0_0"): [tp("in-0")]})
    steps.membership.round({task("0_0"): [tp("in-0")]})
    assert len(requests) == 1
    steps.close()
