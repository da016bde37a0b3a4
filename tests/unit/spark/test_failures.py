"""What workers lack, and what cannot be sent to them, in one sentence each."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

pytest.importorskip("pyspark")

from streams_py import StreamsBuilder, serdes
from streams_py.history.loading import TopologyNotFoundError
from streams_py.history.plan import plan_history
from streams_py.history.task import StageOrders
from streams_py.history.travel import TopologySource
from streams_py.spark.failures import sentence_of
from streams_py.spark.history.serdes_on_the_way import serdes_that_stay
from tests.unit.history.test_runs import word_count


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("ModuleNotFoundError: No module named 'shop.orders'", "no module shop.orders; install it where the workers"),
        ("ModuleNotFoundError: No module named 'pyarrow.lib'", r"install kafka-streams-py\[spark\]"),
        ("Python worker exited unexpectedly (crashed)", r"ended unexpectedly; install kafka-streams-py\[spark\]"),
    ],
)
def test_module_that_workers_lack_is_named_with_its_remedy(text: str, sentence: str) -> None:
    with pytest.raises(RuntimeError, match=sentence):
        raise RuntimeError(sentence_of(ValueError(f"Job aborted.\n{text}\n")))


def test_topology_that_a_worker_cannot_import_says_how_it_gets_there() -> None:
    config = {"application.id": "test"}
    stage = plan_history(word_count(), "test", config, {"lines": 1}).stages[0]
    orders = StageOrders(TopologySource("no_such_shop.app:topology", config), config, stage)
    with pytest.raises(TopologyNotFoundError, match=r"on a Spark worker: .*no_such_shop.*--py-files"):
        orders.load()


class Locked(serdes.Serde[str]):
    """It holds a lock, as one with a client or a cache does."""

    name = "locked"

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def serializer(self, topic: str, *, is_key: bool) -> Callable[[str], bytes]:
        return str.encode

    def deserializer(self, topic: str, *, is_key: bool) -> Callable[[bytes], str]:
        return bytes.decode


def test_serdes_that_hold_something_of_this_process_are_named() -> None:
    builder = StreamsBuilder(key=serdes.STRING, value=Locked())
    builder.table("prices", store="prices").to_stream().to("out", value=serdes.STRING)
    found = serdes_that_stay(builder.build(), {"default.key.serde": Locked()})
    assert [clause.partition(" cannot travel")[0] for clause in found] == [
        "default.key.serde (Locked)",
        "value serde of node KSTREAM-SOURCE-0000000000 (Locked)",
        "value serde of store prices (Locked)",
    ]
    assert serdes_that_stay(word_count(), {"default.key.serde": serdes.STRING}) == []
