"""The PostgreSQL connectors on a real PostgreSQL."""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Iterator
from typing import Any

import pytest

psycopg = pytest.importorskip("psycopg", reason="PostgreSQL connectors need psycopg")

from streams_py.connect.api import RetriableError  # noqa: E402
from streams_py.connect.connectors.postgresql_sink import PostgresqlSinkConnector, PostgresqlSinkTask  # noqa: E402
from streams_py.connect.connectors.postgresql_source import PostgresqlSourceConnector, PostgresqlSourceTask  # noqa: E402
from streams_py.errors import ConfigError, ConnectorError  # noqa: E402
from tests.support.connect.contexts import Offsets, record, started  # noqa: E402
from tests.support.postgresql import PASSWORD  # noqa: E402


@pytest.fixture
def database(postgresql_server: str) -> Iterator[Any]:
    with psycopg.connect(postgresql_server, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS shop CASCADE")
        connection.execute("CREATE SCHEMA shop")
        connection.execute(
            'CREATE TABLE shop.orders (id int PRIMARY KEY, "Name" varchar(20) NOT NULL, price numeric(10,2), '
            "tags jsonb, labels text[], at timestamptz NOT NULL DEFAULT '2026-01-01T00:00:00Z')"
        )
        yield connection


@pytest.fixture
def sink(postgresql_server: str, database: Any) -> Iterator[PostgresqlSinkTask]:
    task = sink_task(postgresql_server)
    yield task
    task.stop()


def sink_task(url: str, **more: str) -> PostgresqlSinkTask:
    props = {"connection.url": url, "table": "shop.orders", "key.columns": "id"}
    task = PostgresqlSinkTask()
    task.start(props | {key.replace("_", "."): value for key, value in more.items()})
    return task


def rows(database: Any, columns: str = '"Name"') -> dict[int, Any]:
    return {row[0]: row[1] for row in database.execute(f"SELECT id, {columns} FROM shop.orders ORDER BY id")}


def backends_end(database: Any) -> None:
    """End all other connections, as a restart of the server does."""
    database.execute(
        "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity "
        "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    )


def test_rows_are_upserted_by_key_and_repeating_records_changes_nothing(database: Any, postgresql_server: str) -> None:
    sink = sink_task(postgresql_server, batch_rows="2")
    batch = [
        record(0, {"id": 1, "Name": "a", "price": 1.5, "tags": {"x": [1, None]}, "labels": ["l", 'q"']}),
        record(1, {"id": 2, "Name": "tab\tline\nback\\slash", "tags": None}),
        record(2, {"id": 1, "Name": "b"}),
        record(3, {"Name": "key"}, key=3),
        record(4, {"Name": "object key"}, key={"id": 4, "other": 5}),
    ]
    for _ in range(2):
        sink.put(batch)
        assert rows(database) == {1: "b", 2: "tab\tline\nback\\slash", 3: "key", 4: "object key"}
        first = database.execute("SELECT price, tags, labels, at::date::text FROM shop.orders WHERE id = 1").fetchone()
        assert (str(first[0]), *first[1:]) == ("1.50", {"x": [1, None]}, ["l", 'q"'], "2026-01-01")
    sink.put([])
    sink.stop()


def test_within_a_batch_the_order_of_a_key_counts(database: Any, postgresql_server: str) -> None:
    sink = sink_task(postgresql_server, delete_enabled="true")
    sink.put([record(0, {"id": n, "Name": "old", "price": n}) for n in (1, 2, 3)])
    sink.put(
        [
            record(1, {"id": 1, "Name": "new", "price": 9}),
            record(2, {"id": 1, "Name": "newer"}),  # price stays 9
            record(3, None, key=2),
            record(4, {"id": 2, "Name": "again"}),  # after a deletion: no price
            record(5, {"id": 3, "Name": "gone"}),
            record(6, None, key={"id": 3}),
        ]
    )
    assert rows(database) == {1: "newer", 2: "again"}
    assert {key: price and int(price) for key, price in rows(database, "price").items()} == {1: 9, 2: None}
    sink.stop()


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (record(7, {"id": 2, "Name": "n", "colour": 1}), "has a field 'colour' that is not a column; add the column"),
        (record(7, {"id": 2}), "has no value for column 'Name'"),
        (record(7, {"Name": "n"}), "has no value for column 'id'; neither its value nor its key contains it"),
        (record(7, [1]), "is list, not an object; use the json converter"),
        (record(7, None, key=2), "has no value; set delete.enabled=true"),
        (record(7, {"id": [2], "Name": "n"}), "has an object or a list in a key column"),
        (record(7, {"id": 2, "Name": "x" * 21}), "does not fit: value too long for type character varying"),
        (record(7, {"id": "two", "Name": "n"}), 'does not fit: invalid input syntax for type integer: "two"'),
        (record(7, {"id": 2, "Name": "nul\0"}), "does not fit: "),
    ],
)
def test_a_record_that_does_not_fit_is_named_and_its_batch_is_not_written(
    database: Any, sink: PostgresqlSinkTask, bad: Any, message: str
) -> None:
    where = "t-0 at offset 7 cannot be written to table shop.orders: it "
    with pytest.raises(ConnectorError, match=re.escape(where + message)):
        sink.put([record(6, {"id": 1, "Name": "n"}), bad])
    assert rows(database) == {}
    sink.put([record(6, {"id": 1, "Name": "n"})])
    assert rows(database) == {1: "n"}


def test_a_constraint_of_the_table_is_named_without_the_row(database: Any, sink: PostgresqlSinkTask) -> None:
    database.execute("ALTER TABLE shop.orders ADD CONSTRAINT cheap CHECK (price < 10)")
    with pytest.raises(ConnectorError, match=r'table shop\.orders: .*violates check constraint "cheap"') as raised:
        sink.put([record(0, {"id": 1, "Name": "Private Person", "price": 11})])
    assert "Private" not in str(raised.value)
    assert raised.value.__suppress_context__


def test_a_lost_connection_is_retried(database: Any, sink: PostgresqlSinkTask) -> None:
    sink.put([record(0, {"id": 1, "Name": "a"})])
    backends_end(database)
    with pytest.raises(RetriableError, match=r"table shop\.orders: "):
        sink.put([record(1, {"id": 2, "Name": "b"})])
    sink.put([record(1, {"id": 2, "Name": "b"})])
    assert rows(database) == {1: "a", 2: "b"}


@pytest.mark.parametrize(
    ("props", "message"),
    [
        ({"table": "shop.nothing"}, r"table shop\.nothing does not exist"),
        ({"key.columns": "number"}, r"key\.columns: table shop\.orders has no column number; it has \['id', 'Name'"),
        ({"key.columns": "Name"}, r"no primary key or unique index on exactly \['Name'\]; CREATE UNIQUE INDEX"),
    ],
)
def test_the_schema_is_checked_when_the_task_starts(
    database: Any, postgresql_server: str, props: dict[str, str], message: str
) -> None:
    with pytest.raises(ConnectorError, match=message):
        PostgresqlSinkTask().start(
            {"connection.url": postgresql_server, "table": "shop.orders", "key.columns": "id"} | props
        )


def test_no_error_shows_a_password(postgresql_server: str) -> None:
    table = {"table": "t", "key.columns": "id"}
    for error, props in (
        (ConfigError, {"connection.url": f"postgresql://u:{PASSWORD}@[host"}),
        (ConfigError, {"connection.url": f"password={PASSWORD} nonsense"}),
        (ConnectorError, {"connection.url": f"postgresql://connect:{PASSWORD}@127.0.0.1:1/postgres"}),
        (ConnectorError, {"connection.url": postgresql_server, "connection.password": PASSWORD + "wrong"}),
        (ConnectorError, {"connection.url": postgresql_server.replace("/postgres", "/nothing")}),
    ):
        with pytest.raises(error, match=r"connection\.url") as raised:
            PostgresqlSinkTask().start(table | props)
        assert PASSWORD not in "".join(traceback.format_exception(raised.value))
        assert PASSWORD not in json.dumps(PostgresqlSinkConnector().validate(table | props))


def source_task(url: str, offsets: Offsets, **more: str) -> PostgresqlSourceTask:
    props = {"connection.url": url, "table": "shop.orders", "incrementing.column": "id", "topic": "t"}
    more = {"poll.interval.ms": "1", **{key.replace("_", "."): value for key, value in more.items()}}
    return started(PostgresqlSourceTask(), offsets, props | more)


def insert(connection: Any, *ids: int) -> None:
    connection.cursor().executemany('INSERT INTO shop.orders (id, "Name") VALUES (%s, %s)', [(n, f"n{n}") for n in ids])


def ids(source: PostgresqlSourceTask) -> list[int]:
    return [read.value["id"] for read in source.poll() or []]


def test_rows_become_records_with_values_that_json_has(database: Any, postgresql_server: str) -> None:
    database.execute("INSERT INTO shop.orders VALUES (1, 'a', 1.50, '{\"x\": [1]}', '{l}')")
    database.execute("ALTER TABLE shop.orders ADD raw bytea DEFAULT '\\x00ff', ADD d float DEFAULT 'NaN'")
    source = source_task(postgresql_server, Offsets(), key_column="Name")
    (read,) = source.poll() or []
    assert (read.topic, read.key, read.source_offset) == ("t", "a", {"incrementing": 1})
    assert json.loads(json.dumps(read.value)) == read.value
    at = read.value.pop("at")
    assert read.value == {
        "id": 1, "Name": "a", "price": "1.50", "tags": {"x": [1]}, "labels": ["l"], "raw": "AP8=", "d": "nan"
    }  # fmt: skip
    assert at == "2026-01-01T00:00:00+00:00"
    source.stop()
    assert source.poll() is None


def test_after_a_kill_rows_go_on_after_the_committed_one(database: Any, postgresql_server: str) -> None:
    insert(database, *range(-5, 20))
    offsets = Offsets()
    first = source_task(postgresql_server, offsets, batch_rows="10")
    read = (first.poll() or []) + (first.poll() or [])
    assert [r.value["id"] for r in read] == list(range(-5, 15))
    offsets.commit(read[11])
    again = source_task(postgresql_server, offsets, batch_rows="100")
    assert ids(again) == list(range(7, 20))
    assert ids(again) == []
    insert(database, 30)
    assert ids(again) == [30]
    first.stop()
    again.stop()


def test_rows_of_a_slow_transaction_are_not_lost(database: Any, postgresql_server: str) -> None:
    source = source_task(postgresql_server, Offsets())
    with psycopg.connect(postgresql_server) as slow:
        insert(slow, 1)
        insert(database, 2)
        assert ids(source) == ids(source) == []  # 2 is there, 1 may still come
        with psycopg.connect(postgresql_server) as later:
            insert(later, 3)
            slow.commit()
            assert ids(source) == [1, 2]  # who came later is not waited for
            later.rollback()
    insert(database, 4)
    assert [n for _ in range(2) for n in ids(source)] == [4]
    source.stop()


def test_a_source_that_lost_its_connection_reads_on(database: Any, postgresql_server: str) -> None:
    insert(database, 1)
    source = source_task(postgresql_server, Offsets())
    assert ids(source) == [1]
    insert(database, 2)
    backends_end(database)
    with pytest.raises(RetriableError):
        source.poll()
    assert ids(source) == [2]
    source.stop()


@pytest.mark.parametrize(
    ("props", "message"),
    [
        ({"incrementing.column": "number"}, r"incrementing\.column: table shop\.orders has no column number"),
        ({"incrementing.column": "Name"}, r"Name of table shop\.orders is character varying"),
        ({"key.column": "number"}, r"key\.column: table shop\.orders has no column number"),
        ({"table": "shop.nothing"}, r"table shop\.nothing does not exist"),
    ],
)
def test_the_source_checks_the_table_when_it_starts(
    database: Any, postgresql_server: str, props: dict[str, str], message: str
) -> None:
    with pytest.raises(ConnectorError, match=message):
        source_task(postgresql_server, Offsets(), **props)


def test_configurations_are_checked_by_the_connectors() -> None:
    for connector in (PostgresqlSinkConnector(), PostgresqlSourceConnector()):
        assert "connection.url" in connector.validate({"table": "t"})
        assert connector.validate({"table": "a.b.c"})["table"][0].startswith("'a.b.c' cannot be used")
    assert PostgresqlSinkConnector().validate({"conection.url": "x"})["conection.url"] == [
        "unknown key; did you mean connection.url?"
    ]
