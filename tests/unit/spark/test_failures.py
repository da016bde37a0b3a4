"""Errors of Spark, of its JVM and of its workers become one sentence."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace

import pytest

from tests.support.spark.locked import Locked

pytest.importorskip("pyspark")

from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError

from streams_py import StreamsBuilder, serdes
from streams_py.history.loading import TopologyNotFoundError, TopologySource
from streams_py.history.plan import plan_history
from streams_py.history.task import StageOrders
from streams_py.spark import failures
from streams_py.spark.failures import sentence_of
from streams_py.spark.history.serdes_on_the_way import serdes_that_stay
from tests.support.history.programs import word_count


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("ModuleNotFoundError: No module named 'shop.orders'", "no module shop.orders; install it where the workers"),
        ("ModuleNotFoundError: No module named 'pyarrow.lib'", r"install kafka-streams-py\[spark\]"),
        ("Python worker exited unexpectedly (crashed)", r"killed it .*fewer cores"),
        ("Python worker exited unexpectedly (crashed)", r"install kafka-streams-py\[spark\]"),
    ],
)
def test_module_that_workers_lack_is_named_with_its_remedy(text: str, sentence: str) -> None:
    with pytest.raises(RuntimeError, match=sentence):
        raise RuntimeError(sentence_of(ValueError(f"Job aborted.\n{text}\n")))


@pytest.mark.parametrize(
    ("ending", "sentence"),
    [
        ("kill -KILL $$", r"was killed \(SIGKILL\).*use fewer cores or a smaller spark.driver.memory"),
        ("exit 52", "Spark's JVM is out of memory: increase the setting spark.driver.memory"),
        ("exit 1", r"stopped with status 1; its output is above.*hs_err_pid\d+.log in /"),
        ("kill -ABRT $$", r"was stopped by SIGABRT; its output is above"),
    ],
)
@pytest.mark.parametrize("error", [ConnectionRefusedError(111, "Connection refused"), Py4JNetworkError("empty answer")])
def test_end_of_the_jvm_is_said_with_its_remedy(
    error: Exception, ending: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen(["sh", "-c", ending]) as jvm:
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=jvm))  # in place of a JVM
        with pytest.raises(RuntimeError, match=sentence):
            raise RuntimeError(sentence_of(error))


def test_lost_connection_of_a_jvm_that_lives_is_not_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "_ENDING_S", 0.01)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as jvm:
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=jvm))  # in place of a JVM
        assert sentence_of(Py4JNetworkError("empty answer")) == "Py4JNetworkError: empty answer"


def test_jvm_that_did_not_start_is_said_with_what_may_be_wrong() -> None:
    error = PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
    assert "stopped before it was ready; its output is above" in sentence_of(error)


def test_memory_of_java_that_is_used_up_is_said_with_its_remedy() -> None:
    text = "Job aborted due to stage failure: Lost task 0.0: java.lang.OutOfMemoryError: Java heap space\n\tat a.b"
    assert "is out of memory: increase the setting spark.driver.memory" in sentence_of(RuntimeError(text))


def test_what_a_worker_has_raised_is_said_and_not_that_a_job_was_aborted() -> None:
    text = (
        "An error occurred while calling o99.parquet.\n: org.apache.spark.SparkException: Job aborted due to stage "
        "failure: Lost task 0.0: org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
        '  File "worker.py", line 1, in main\n    process()\n    ^^^^^^^^^\nKeyError: 7\n\nDuring handling of the '
        'above exception, another exception occurred:\n\nTraceback (most recent call last):\n  File "app.py", line 3, i'
        "n f\n    sys.exit(3)\nSystemExit: 3\n\n\tat org.apache.spark.api.python.BasePythonRunner.a(P.scala:1)\n"
    )
    assert sentence_of(RuntimeError(text)) == "a Python worker has failed: SystemExit: 3"


@pytest.mark.parametrize("why", ["No space left on device", "Disk quota exceeded"])
def test_disk_that_is_full_is_said_with_its_remedy(why: str) -> None:
    text = (
        "An error occurred while calling o99.parquet.\n: org.apache.spark.SparkException: Job aborted due to stage "
        "failure: Task 0 in stage 0.0 failed 1 times, most recent failure: Lost task 0.0: org.apache.spark."
        "SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/tmp/x. SQLSTATE: 58030\n\tat a.b\n"
        f"Caused by: java.io.IOException: {why}\n\tat c.d"
    )
    assert sentence_of(RuntimeError(text)).startswith(f"a disk is full ({why}): free space, or let Spark")


def test_topology_that_a_worker_cannot_import_says_how_it_gets_there() -> None:
    config = {"application.id": "test"}
    stage = plan_history(word_count(), "test", config, {"lines": 1}).stages[0]
    orders = StageOrders(TopologySource("no_such_shop.app:topology", config), config, stage)
    with pytest.raises(TopologyNotFoundError, match=r"on a Spark worker: .*no_such_shop.*--py-files"):
        orders.load()


def test_serdes_that_hold_something_of_this_process_are_named() -> None:
    builder = StreamsBuilder(key=serdes.STRING, value=Locked())
    builder.table("prices", store="prices").to_stream().to("out", value=serdes.STRING)
    found = serdes_that_stay(builder.build(), {"default.key.serde": Locked()})
    assert [clause.partition(" cannot be sent to Spark's workers")[0] for clause in found] == [
        "default.key.serde (Locked)",
        "value serde of node KSTREAM-SOURCE-0000000000 (Locked)",
        "value serde of store prices (Locked)",
    ]
    assert serdes_that_stay(word_count(), {"default.key.serde": serdes.STRING}) == []
