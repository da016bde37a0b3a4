"""Jobs whose clients deliver every record again. Each prints the number of repeated records.

    python -m tests.support.spark.redelivering FOLDER BOOTSTRAP TOPIC EVENTS

The environment has ``ODD_CLIENT=again`` and ``PYTHONPATH=tests/support/spark/odd_clients``.
``TOPIC`` is read by a batch, a stream, a history and a warm start; ``EVENTS`` are the events of the group ``GROUP``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from streams_py import StreamsBuilder, serdes
from streams_py.cli.spark.bootstrap import bootstrap_app
from streams_py.cli.spark.telemetry import app as telemetry
from streams_py.spark import register, run
from streams_py.spark.redelivered import redelivered_records
from streams_py.spark.session import spark_session

_PROGRAM = """
from streams_py import StreamsBuilder, serdes


def count():
    builder = StreamsBuilder(key=serdes.BYTES, value=serdes.BYTES)
    builder.stream({topic!r}).group_by_key().count(store="counts")
    return builder.build()
"""


def main(folder: Path, bootstrap: str, topic: str, group: str) -> None:
    spark = spark_session("redelivering", master="local[2]", **{"spark.sql.shuffle.partitions": 2})
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    given = {"kafka.bootstrap.servers": bootstrap, "topics": topic}
    known = 0

    def say(name: str, *more: object) -> None:
        nonlocal known
        before, known = known, redelivered_records(spark)
        print(name, known - before, *more, flush=True)

    say("batch", spark.read.format("streams-kafka").options(**given).load().count())

    rows = spark.readStream.format("streams-kafka").options(**given).load()
    query: Any = rows.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    query.trigger(availableNow=True).start(str(folder / "rows")).awaitTermination()
    say("stream", spark.read.parquet(str(folder / "rows")).count())

    def copied() -> StreamsBuilder:
        builder = StreamsBuilder(key=serdes.BYTES, value=serdes.BYTES)
        builder.stream(topic).to("copied")
        return builder

    with run(copied, {"kafka.bootstrap.servers": bootstrap}, spark=spark, partitions={"copied": 2}) as results:
        say("history", results.written("copied"), results.redelivered)

    def command(app: Any, *arguments: str) -> str:
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
        return " ".join(result.output.split())

    program, plan = folder / "app.py", ("--plan", str(folder / "plan.json"), "--bootstrap", bootstrap)
    program.write_text(_PROGRAM.format(topic=topic))
    command(bootstrap_app, "plan", f"{program}:count", "--application-id", f"{topic}-count", *plan)
    said = command(bootstrap_app, "run", *plan)
    say("warm", said)
    said = command(bootstrap_app, "verify", *plan)
    say("verify", said)

    tables = ("--tables", str(folder / "tables"), "--bootstrap", bootstrap)
    said = command(telemetry, "run", "--group", group, "--once", *tables)
    say("telemetry", said)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
