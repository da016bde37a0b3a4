"""Topologies over a history, on Spark."""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streams_py import Materialized, StreamsBuilder, Topology, serdes
from streams_py.errors import ConfigError, StreamsError
from streams_py.spark import files
from streams_py.spark.columns import with_headers_for_python
from streams_py.spark.history import compare
from streams_py.spark.history.compare import compare_runs
from streams_py.spark.history.progress import HistoryProgress
from streams_py.spark.history.run import Results, run
from tests.support.history.programs import ORDERS, PASSED_OVER, PRICES, merged, priced, some_lines, word_count
from tests.support.history.runs import Given, buffered, driven, folded, numbered
from tests.support.spark.frames import frame
from tests.support.spark.locked import Locked
from tests.support.system.file_locks import held_elsewhere

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.timeout(900)]


def state_of(results: Results, changelog: str) -> dict[tuple[int, bytes], tuple[int, bytes, None]]:
    rows = results.changelogs[changelog].collect()
    return {(row.partition, bytes(row.key)): (row.timestamp_ms, bytes(row.value), None) for row in rows}


def test_word_count_over_parquet_leaves_the_changelog_of_a_live_run(spark: SparkSession, tmp_path: Path) -> None:
    records = some_lines(400, 3)
    archive = str(tmp_path / "archive")
    frame(spark, records).repartition(5).write.parquet(archive)
    live = driven(word_count(), records, 3, {"application.id": "history"})
    with run(word_count, {"lines": archive}, spark=spark) as results:
        assert state_of(results, "history-counts-changelog") == folded(live["history-counts-changelog"])
        assert results.sinks["totals"].count() == len(live["totals"])
        (first,) = [done for done in results.summaries()[0] if done.task == 0]
        assert first.positions["lines"][0] == max(record.offset for record in records if record.partition == 0) + 1


def test_state_of_every_store_is_had_by_name_whatever_its_changelog_is(spark: SparkSession) -> None:
    def table_and_count() -> StreamsBuilder:
        builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
        builder.table("prices", store="table").to_stream().to("out")
        orders = builder.stream("orders").group_by_key()
        orders.count(materialized=Materialized("counts", value=serdes.INT64, logging=False))
        return builder

    prices = numbered([("prices", 100 + at, b"k%d" % (at % 5), b"%d" % at) for at in range(20)], 2)
    orders = numbered([("orders", 100 + at, b"k%d" % (at % 3), b"") for at in range(9)], 2)
    given = {"prices": frame(spark, prices), "orders": frame(spark, orders)}
    with run(table_and_count, given, config={"topology.optimization": "all"}, spark=spark) as results:
        assert (set(results.changelogs), set(results.stores)) == (set(), {"table", "counts"})
        found = {
            store: {(bytes(row.key), row.timestamp_ms, bytes(row.value)) for row in rows.collect()}
            for store, rows in results.stores.items()
        }
    assert found["table"] == {(b"k%d" % (at % 5), 100 + at, b"%d" % at) for at in range(15, 20)}
    assert found["counts"] == {(b"k%d" % at, 106 + at, (3).to_bytes(8)) for at in range(3)}


def test_progress_says_what_each_stage_reads_and_what_it_has_taken(spark: SparkSession) -> None:
    records = some_lines(50, 2)
    told: list[HistoryProgress] = []
    with run(word_count, {"lines": frame(spark, records)}, spark=spark, tick=told.append) as results:
        words = results.summaries()[1]
        assert results.written("totals") == results.sinks["totals"].count()
    ends = ((at.stage, at.stages, at.records, at.total) for at in told if at.records in (0, at.total))
    assert list(dict.fromkeys(ends)) == [  # a slow machine has time to say it twice
        (0, 2, 0, len(records)),
        (0, 2, len(records), len(records)),
        (1, 2, 0, sum(done.records for done in words)),
        (1, 2, sum(done.records for done in words), sum(done.records for done in words)),
    ]


def test_what_user_code_raises_names_task_topic_partition_and_offset(spark: SparkSession) -> None:
    def broken() -> object:
        from streams_py import StreamsBuilder, serdes

        builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
        builder.stream("lines").map_values(lambda line: 1 // (len(line) - 4)).to("out", value=serdes.INT64)
        return builder.build()

    line = broken.__code__.co_firstlineno + 4
    records = [Given("lines", 1, 5, 10, None, b"ok!"), Given("lines", 1, 9, 10, None, b"four")]
    with pytest.raises(StreamsError, match=rf"MAPVALUES.*task 0_1.*lines-1 at offset 9.*division.*\(.*\.py:{line}\)$"):
        run(broken, {"lines": frame(spark, records)}, spark=spark)


def test_worker_that_is_killed_is_said_so(spark: SparkSession) -> None:
    def deadly() -> object:
        import os
        import signal

        from streams_py import StreamsBuilder, serdes

        builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
        builder.stream("lines").map_values(lambda line: os.kill(os.getpid(), signal.SIGKILL) or line).to("out")
        return builder.build()

    with pytest.raises(
        StreamsError, match="sub-topology 0 of history: a Python worker stopped unexpectedly: if the system killed it"
    ):
        run(deadly, {"lines": frame(spark, [Given("lines", 1, 5, 10, None, b"last")])}, spark=spark)


def test_program_that_user_code_ends_is_said_so(spark: SparkSession) -> None:
    def ends() -> object:
        import sys

        from streams_py import StreamsBuilder, serdes

        builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
        builder.stream("lines").map_values(sys.exit).to("out")
        return builder.build()

    with pytest.raises(StreamsError, match=r"sub-topology 0 of history: .*SystemExit: last"):
        run(ends, {"lines": frame(spark, [Given("lines", 1, 5, 10, None, b"last")])}, spark=spark)


def test_rows_without_headers_have_no_nulls_on_their_way_to_workers(spark: SparkSession) -> None:
    """Arrow scans all of them for each row."""
    from pyspark.sql import functions as f

    rows = frame(spark, some_lines(3, 1)).withColumn(
        "headers", f.lit(None).cast("array<struct<key:string,value:binary>>")
    )
    assert [row.headers for row in with_headers_for_python(rows).collect()] == [[]] * rows.count()


def joined() -> Topology:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    prices = builder.table("prices")
    orders = builder.stream("orders").join(prices, lambda order, price: f"{order}@{price}")
    orders.group_by_key().reduce(lambda a, b: f"{a},{b}", store="bought").to_stream().to("carts")
    return builder.build()


def orders_and_prices() -> list[Given]:
    chance = random.Random(5)
    made = [
        (chance.choice(["orders", "prices"]), chance.randrange(2_000), b"k%d" % chance.randrange(9), b"v%d" % at)
        for at in range(300)
    ]
    return numbered(made, 4)


def frames(spark: SparkSession, records: list[Given]) -> dict[str, DataFrame]:
    def of(topic: str) -> DataFrame:
        return frame(spark, [record for record in records if record.topic == topic])

    return {topic: of(topic) for topic in ("orders", "prices")}


@pytest.mark.parametrize("cores", [1, 4])
def test_join_of_two_topics_takes_records_as_a_task_with_full_buffers_does(spark: SparkSession, cores: int) -> None:
    records = orders_and_prices()
    live = buffered(joined, records, 4, {"application.id": "history"})
    given = {topic: rows.repartition(cores) for topic, rows in frames(spark, records).items()}
    with run(joined, given, spark=spark, partitions={"orders": 4, "prices": 4}) as results:
        rows = results.sinks["carts"].orderBy("source", "seq").collect()
        written = [(row.topic, row.partition, row.timestamp_ms, bytes(row.key), bytes(row.value), None) for row in rows]
        assert written == live["carts"]
        for changelog in results.changelogs:
            assert state_of(results, changelog) == folded(live.get(changelog, []))


def test_record_that_cannot_be_read_takes_no_part_in_the_order_of_several_topics(spark: SparkSession) -> None:
    config = {"application.id": "history", "deserialization.exception.handler": "log_and_continue"}
    given = {topic: frame(spark, [one for one in PASSED_OVER if one.topic == topic]) for topic in ("a", "b")}
    with run(merged, given, config=config, spark=spark) as results:
        written = [bytes(row.value) for row in results.sinks["out"].orderBy("source", "seq").collect()]
    assert written == [record[4] for record in buffered(merged, PASSED_OVER, 1, config)["out"]]


def test_state_as_it_was_at_an_instant_is_that_of_the_records_before(spark: SparkSession) -> None:
    records = some_lines(200, 2)
    config = {"application.id": "history"}
    earlier = [record for record in records if record.timestamp_ms < 1_090]
    by_time = folded(driven(word_count(), earlier, 2, config)["history-counts-changelog"])
    with run(word_count, {"lines": frame(spark, records)}, spark=spark, until=1_090) as results:
        assert state_of(results, "history-counts-changelog") == by_time
    below = [record for record in records if record.offset < (30 if record.partition == 0 else 50)]
    by_offset = folded(driven(word_count(), below, 2, config)["history-counts-changelog"])
    ends = {"lines": {0: 30, 1: 50}}
    with run(word_count, {"lines": frame(spark, records)}, spark=spark, until=ends) as results:
        assert state_of(results, "history-counts-changelog") == by_offset


def test_two_versions_of_a_topology_are_compared_over_the_same_history(spark: SparkSession) -> None:
    def shouting(loud: int) -> Topology:
        builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
        builder.stream("lines").map_values(lambda line: line.upper() if len(line) > loud else line).to("out")
        return builder.build()

    texts = [b"aa", b"bbbb", b"cccccc", b"bbbb"]
    records = [Given("lines", 0, at, 1_000 * at, None, text) for at, text in enumerate(texts)]
    rows = {"lines": frame(spark, records)}
    found = compare_runs(spark, lambda: shouting(5), lambda: shouting(3), lambda _: rows)
    assert (found["out"].same, found["out"].only_old, found["out"].only_new) == (2, 2, 2)
    assert [(which, row["value"]) for which, row in found["out"].sample] == [
        ("new", "BBBB"), ("old", "bbbb"), ("new", "BBBB"), ("old", "bbbb"),
    ]  # fmt: skip
    newest = compare_runs(spark, lambda: shouting(5), lambda: shouting(3), lambda _: rows, last_ms=500)
    assert (newest["out"].same, newest["out"].only_old, newest["out"].only_new) == (0, 1, 1)


def test_versions_that_differ_in_headers_alone_differ(spark: SparkSession) -> None:
    def signed(*headers: tuple[str, bytes | None]) -> Topology:
        def sign(record: Any, context: Any) -> Any:
            yield record.with_headers(headers)

        sign.batch_safe = True  # type: ignore[attr-defined]
        builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
        builder.stream("lines").process(sign).to("out")
        return builder.build()

    rows = {"lines": frame(spark, [Given("lines", 0, 0, 5, b"k", b"v")])}
    for old, new in (([("a", None)], [("a", b"null")]), ([("a", b"1}, {b, 2")], [("a", b"1"), ("b", b"2")])):
        found = compare_runs(spark, partial(signed, *old), partial(signed, *new), lambda _: rows)["out"]
        assert (found.same, found.only_old, found.only_new) == (0, 1, 1)
        assert [row["headers"] for _, row in sorted(found.sample)] == [
            [[name, None if value is None else value.decode()] for name, value in headers] for headers in (new, old)
        ]
    found = compare_runs(spark, partial(signed, ("a", b"1")), partial(signed, ("a", b"1")), lambda _: rows)["out"]
    assert (found.same, found.only_old, found.only_new) == (1, 0, 0)


def test_newest_outputs_are_those_by_the_times_that_functions_make(spark: SparkSession) -> None:
    def timed(addition: str) -> Topology:
        builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
        lines = builder.stream("lines", timestamp_extractor=lambda key, value, at_ms, before_ms: int(value))
        lines.map_values(lambda value: value + addition if int(value) > 10 else value).to("out")
        return builder.build()

    # Events of long ago, written now; the newest one was written first.
    records = [Given("lines", 0, at, 1_000_000 + at, None, text) for at, text in enumerate([b"40", b"39", b"9", b"8"])]
    rows = {"lines": frame(spark, records)}
    found = compare_runs(spark, lambda: timed(""), lambda: timed("!"), lambda _: rows, last_ms=31)
    assert (found["out"].same, found["out"].only_old, found["out"].only_new) == (1, 2, 2)


def test_newest_outputs_are_compared_with_the_state_that_they_depend_on(spark: SparkSession) -> None:
    def counted(least: int) -> Topology:
        builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
        counts = builder.stream("lines").group_by_key().count(store="counts").to_stream()
        counts.filter(lambda _, count: count >= least).to("out", value=serdes.INT64)
        return builder.build()

    rows = {"lines": frame(spark, [Given("lines", 0, at, 1_000 * at, b"k", b"v") for at in range(4)])}
    found = compare_runs(spark, lambda: counted(1), lambda: counted(4), lambda _: rows, last_ms=500)
    assert (found["out"].same, found["out"].only_old, found["out"].only_new) == (1, 0, 0)
    found = compare_runs(spark, lambda: counted(1), lambda: counted(4), lambda _: rows, last_ms=1_500)
    assert (found["out"].same, found["out"].only_old, found["out"].only_new) == (1, 1, 0)


def test_folder_that_machines_do_not_share_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "is_local", lambda master: False)
    (tmp_path / "other").write_text("stays")
    files.check_shared(spark, str(tmp_path), "--work")
    files.check_shared(spark, str(tmp_path / "new"), "--work")
    write = files._write_files  # machines of a cluster have disks of their own

    def write_on_other_machines(session: SparkSession, path: str, count: int) -> None:
        write(session, path, count)
        for file in sorted(Path(path).glob("part-*"))[::2]:
            file.unlink()

    monkeypatch.setattr(files, "_write_files", write_on_other_machines)  # see above
    with pytest.raises(ConfigError, match=r"--work: the workers have written 16 files to .* the driver sees 8; name"):
        run(word_count, {"lines": frame(spark, some_lines(5, 1))}, spark=spark, work=str(tmp_path))
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(
        ConfigError, match=r"--out: the workers cannot write to .*file, or cannot read files .*; name a folder"
    ):
        files.check_shared(spark, str(tmp_path / "file"), "--out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "new", "other"]
    assert not [*(tmp_path / "new").iterdir()]


def test_a_topology_that_cannot_travel_is_said_so(spark: SparkSession) -> None:
    lock = threading.Lock()

    def held() -> Topology:
        builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
        builder.stream("lines").map_values(lambda line: str(lock) + line).to("out")
        return builder.build()

    with pytest.raises(StreamsError, match=r"the topology cannot be sent to Spark's workers.*module:name"):
        run(held, {"lines": frame(spark, some_lines(3, 1))}, spark=spark)


def test_a_serde_that_cannot_travel_is_named(spark: SparkSession) -> None:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    builder.stream("lines").to("out", value=Locked(), name="loud")
    wanted = r"sub-topology 0 of history: the value serde of node loud \(Locked\) cannot be sent .*lock.*module:name"
    with pytest.raises(StreamsError, match=wanted):
        run(builder.build(), {"lines": frame(spark, some_lines(3, 1))}, spark=spark)
    with run(with_locked, {"lines": frame(spark, some_lines(3, 1))}, spark=spark) as results:
        assert results.sinks["out"].count() == 3  # each worker makes its own


def with_locked() -> Topology:
    builder = StreamsBuilder(key=serdes.STRING, value=serdes.STRING)
    builder.stream("lines").to("out", value=Locked(), name="loud")
    return builder.build()


def test_what_a_broken_off_run_left_in_the_folder_is_replaced(spark: SparkSession, tmp_path: Path) -> None:
    left = tmp_path / "stage-0"
    left.mkdir()
    (left / "part-0.parquet").write_bytes(b"half a file")
    given = {"lines": frame(spark, some_lines(3, 1))}
    with run(with_locked, given, work=str(tmp_path), spark=spark) as results:
        assert results.sinks["out"].count() == 3


def test_folder_belongs_to_one_run_until_its_results_are_closed(spark: SparkSession, tmp_path: Path) -> None:
    given, work = {"lines": frame(spark, some_lines(3, 1))}, tmp_path / "work"
    with run(with_locked, given, work=str(work), spark=spark) as results:
        of_us = rf"--work: {work}/? has the results of an earlier run of this process; close\(\) them, or name another"
        with pytest.raises(ConfigError, match=of_us):
            run(word_count, given, work=f"{work}/", spark=spark)
        with pytest.raises(ConfigError, match=f"file:{work} has the results of an earlier run"):
            run(word_count, given, work=f"file:{work}", spark=spark)
        assert results.sinks["out"].count() == 3
    with held_elsewhere(work / ".lock") as holder:
        of_another = (
            f"--work: process {holder.pid} has a run in {work}, which would be overwritten; stop it, wait until"
        )
        with pytest.raises(ConfigError, match=of_another):
            run(word_count, given, work=str(work), spark=spark)
    with pytest.raises(ConfigError, match="no column offset"):
        run(word_count, {"lines": given["lines"].drop("offset")}, work=str(work), spark=spark)
    run(with_locked, given, work=str(work), spark=spark).close()
    assert [path.name for path in work.iterdir()] == ["stage-0"]
    (tmp_path / "letter").write_text("dear")
    with pytest.raises(ConfigError, match=r"--work: .*letter cannot be written \(File exists\); name another folder"):
        run(with_locked, given, work=str(tmp_path / "letter"), spark=spark)


def test_comparison_that_cannot_have_its_folders_reads_nothing(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import functions as f

    (tmp_path / "new").mkdir()
    unread = frame(spark, some_lines(3, 1)).withColumn("value", f.raise_error(f.lit("it was read")).cast("binary"))
    with (
        held_elsewhere(tmp_path / "new" / ".lock") as holder,
        pytest.raises(ConfigError, match=f"--work: process {holder.pid} has a run in {tmp_path}/new, which"),
    ):
        compare_runs(spark, with_locked, with_locked, lambda _: {"lines": unread}, work=str(tmp_path))


def test_both_versions_read_the_same_files_of_an_archive_to_which_more_come(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, offsets = str(tmp_path / "archive"), itertools.count(100)
    frame(spark, some_lines(5, 1)).write.parquet(archive)

    def run_while_more_come(*arguments: Any, **given: Any) -> Results:
        later = Given("lines", 0, next(offsets), 9_000, None, b"later")
        frame(spark, [later]).write.mode("append").parquet(archive)
        return run(*arguments, **given)

    monkeypatch.setattr(compare, "run", run_while_more_come)
    found = compare_runs(spark, with_locked, with_locked, lambda _: {"lines": archive})["out"]
    assert (found.same, found.only_old, found.only_new) == (len(some_lines(5, 1)), 0, 0)


def test_end_of_a_partition_that_there_is_not_is_refused(spark: SparkSession) -> None:
    rows = {"lines": frame(spark, some_lines(30, 2))}
    for partition in (2, -1):
        refusal = rf"until: topic lines has no partition {partition}, only 0 to 1; if the last"
        with pytest.raises(ConfigError, match=refusal):
            run(word_count, rows, until={"lines": {0: 3, partition: 5}}, spark=spark)
    with run(word_count, rows, until={"lines": {2: 5}}, partitions={"lines": 3}, spark=spark) as results:
        assert results.plan.inputs == {"lines": 3}
    inputs = {"orders": frame(spark, ORDERS), "prices": frame(spark, PRICES)}
    with pytest.raises(ConfigError, match="until: topic prices has no partition 1, only 0 to 0; if the last"):
        run(priced, inputs, global_tables="as-of-end", until={"prices": {1: 1}}, spark=spark)


def test_partitions_are_those_of_all_rows_whichever_are_wanted(spark: SparkSession) -> None:
    """A repartition topic has the same partition count as live, and joined topics have equal counts."""
    old, new = some_lines(30, 3), [Given("lines", 0, 100, 90_000, None, b"new")]
    rows = {"lines": frame(spark, old + new)}
    asked: list[dict[str, Any]] = [{"since": 90_000}, {"until": {"lines": {1: 0, 2: 0}}}]
    for wanted in asked:
        with run(word_count, rows, spark=spark, **wanted) as results:
            assert results.plan.inputs == {"lines": 3}
            assert {done.task for done in results.summaries()[0]} == {0}


def test_global_table_is_filled_whole_before_the_first_record(spark: SparkSession, tmp_path: Path) -> None:
    archive = str(tmp_path / "prices")
    frame(spark, PRICES).write.parquet(archive)
    inputs = {"orders": frame(spark, ORDERS), "prices": archive}
    live = driven(priced(), [*PRICES, *ORDERS], 2, {"application.id": "history"})
    with run(priced, inputs, global_tables="as-of-end", spark=spark) as results:
        made = Counter(bytes(row.value) for row in results.sinks["out"].collect())
        assert state_of(results, "history-sums-changelog") == folded(live["history-sums-changelog"])
    assert made == Counter(record[4] for record in live["out"])
    before = run(priced, inputs, global_tables="as-of-end", until={"prices": {0: 1}}, spark=spark)
    with before as results:
        assert {bytes(row.value)[-2:] for row in results.sinks["out"].collect()} == {b"=1"}
    with pytest.raises(StreamsError, match="--global-tables as-of-end"):
        run(priced, inputs, spark=spark)
    with pytest.raises(ConfigError, match="the only supported value is as-of-end"):
        run(priced, inputs, global_tables="live", spark=spark)
    with pytest.raises(ConfigError, match="topic prices has no input"):
        run(priced, {"orders": frame(spark, ORDERS)}, global_tables="as-of-end", spark=spark)
    from pyspark.sql import functions as f

    broken = frame(spark, PRICES).withColumn("value", f.raise_error(f.lit("away")).cast("binary"))
    with pytest.raises(StreamsError, match=r"global table of topic prices cannot be read: .*away"):
        run(priced, {"orders": frame(spark, ORDERS), "prices": broken}, global_tables="as-of-end", spark=spark)


@pytest.mark.weekly
def test_records_of_a_megabyte_fit_into_the_memory_of_a_session_of_ours(spark: SparkSession, tmp_path: Path) -> None:
    """With Parquet's default pages and row groups of 100 blocks and more, they would not fit."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def lasting() -> Topology:
        builder = StreamsBuilder(key=serdes.STRING, value=serdes.BYTES)
        again = builder.stream("large").select_key(lambda key, _: f"{key}x")
        again.group_by_key().reduce(lambda _, new: new, store="last")
        return builder.build()

    chance, count = random.Random(5), 600
    columns = {"partition": pa.int32(), "offset": pa.int64(), "timestamp_ms": pa.int64(), "key": pa.binary()}
    schema = pa.schema([*columns.items(), ("value", pa.binary())])
    with pq.ParquetWriter(tmp_path / "large.parquet", schema) as writer:
        for first in range(0, count, 50):
            some = range(first, first + 50)
            keys, values = [b"k%d" % (at % 20) for at in some], [chance.randbytes(1 << 20) for _ in some]
            writer.write_table(pa.table([[0] * 50, some, [1_000 + at for at in some], keys, values], schema=schema))
    with run(lasting, {"large": str(tmp_path)}, spark=spark) as results:
        assert sum(done.records for done in results.summaries()[1]) == count
        assert results.changelogs["history-last-changelog"].count() == 20
