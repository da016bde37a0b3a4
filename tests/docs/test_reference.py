"""The pages made from code have everything, and say it."""

from __future__ import annotations

import enum
import importlib
import json
import re
from collections import Counter
from xml.etree import ElementTree as ET

import pytest

import streams_py
from docs.tools import api, configuration, pictures
from docs.tools.generated import GENERATED
from streams_py.config.help import default_of, key_of
from streams_py.config.keys import CLIENT_KEYS, RENAMED
from streams_py.config.streams_config import StreamsConfig, known_keys
from streams_py.errors import StreamsError


@pytest.mark.parametrize("address", GENERATED)
def test_page_begins_with_a_title_and_shows_no_machinery(address: str) -> None:
    text = GENERATED[address]()
    assert text.startswith("# ")
    for machinery in (":class:", ":meth:", "``", " at 0x", "<factory>", "[bold]", "typing.", "ForwardRef", "::\n"):
        assert machinery not in text.replace("```", ""), machinery


def test_every_public_name_stands_on_exactly_one_page() -> None:
    modules = {"assignment", "errors", "serdes"}
    stand = Counter(name for area in api.AREAS.values() for module, name in api.names_of(area))
    assert {name for name in streams_py.__all__ if name not in stand} == modules
    twice = {name for name, count in stand.items() if count > 1}
    assert twice <= {"ProcessId", "TaskId", "TopicPartition", "Serde", "Windowed"}, "names of two public modules"


def test_every_error_says_what_to_do_itself_or_in_a_base() -> None:
    public = [getattr(importlib.import_module(m), n) for area in api.AREAS.values() for m, n in api.names_of(area)]
    kinds = {value for value in public if isinstance(value, type) and issubclass(value, StreamsError)}
    kinds |= {getattr(streams_py.errors, name) for name in streams_py.errors.__all__}
    silent = {
        kind.__name__
        for kind in kinds
        if not any("What to do: " in (base.__doc__ or "") for base in kind.__mro__ if base is not StreamsError)
    }
    assert silent == {"StreamsError"}


@pytest.mark.parametrize("address", [address for address in GENERATED if "/api/" in address])
def test_every_entry_says_something(address: str) -> None:
    entries = GENERATED[address]().split("\n## ")[1:]
    silent = [entry.splitlines()[0] for entry in entries if len(entry.replace("```", "").split("\n\n")) < 2]
    assert silent == []


@pytest.mark.parametrize("area", api.AREAS)
def test_every_public_method_stands_on_its_page(area: str) -> None:
    text = GENERATED[f"reference/api/{area}.md"]()
    kinds = {name: getattr(importlib.import_module(module), name) for module, name in api.names_of(api.AREAS[area])}
    by_ports = {
        member
        for name, kind in kinds.items()
        if getattr(kind, "_is_protocol", False)
        for member in vars(kind)
        if f"\n### `{name}.{member}`\n" in text
    }
    missing = [
        f"{name}.{member}"
        for name, kind in kinds.items()
        if isinstance(kind, type) and not issubclass(kind, enum.Enum)
        for member, _ in api.members_of(kind)
        if f"\n### `{name}.{member}`\n" not in text
        and member not in by_ports  # a broker does what its port says
        and not member.startswith("test_")  # a name that is a sentence
    ]
    assert missing == [], "methods without a docstring"


@pytest.mark.parametrize("address", [address for address in GENERATED if "/api/" in address])
def test_what_takes_a_duration_says_in_which_unit(address: str) -> None:
    entries = re.split(r"\n(?=##+ `)", GENERATED[address]())
    silent = []
    for entry in entries:
        _, _, rest = entry.partition("```text\n")
        signature, _, text = rest.partition("```")
        if "Duration" in signature and not re.search(r"timedelta|\bms\b", text):
            silent.append(entry.splitlines()[0])
    assert silent == []


def test_configuration_page_has_every_key_with_its_default_and_that_of_java() -> None:
    text = configuration.page()
    for name, field in StreamsConfig.model_fields.items():
        key = key_of(name, field)
        if key:
            entry = text[text.index(f"### `{key}`") :].split("\n### ")[0]
            assert default_of(field) in entry or "Default: none" in entry
            assert "Kafka Streams" in entry
            assert "*Change it* " in entry


def test_defaults_are_those_of_kafka_streams() -> None:
    fields = {key_of(name, field): default_of(field) for name, field in StreamsConfig.model_fields.items()}
    others = {key for key in known_keys() & set(configuration.JAVA) if "same" not in _java(key, fields)}
    assert others - {"application.id", "bootstrap.servers"} == configuration.DIFFERENT


def _java(key: str, fields: dict[str, str]) -> str:
    return configuration.java_default(key, fields[key])


def test_every_key_of_kafka_streams_is_known_or_says_what_to_use_instead() -> None:
    known = known_keys() | CLIENT_KEYS | set(RENAMED)
    assert set(configuration.JAVA) - known == set(configuration.INSTEAD)


def test_picture_is_what_the_recorded_run_draws() -> None:
    run = json.loads(pictures.RUN.read_text(encoding="utf-8"))
    svg = pictures.drawn(run)
    assert pictures.RUN.with_suffix(".svg").read_text(encoding="utf-8") == svg
    ET.fromstring(svg)
    assert all(event["what"] in svg for event in run["done"])


def test_command_line_page_has_every_command() -> None:
    from streams_py.cli.commands import app

    text = GENERATED["reference/command-line.md"]()
    for command in app.registered_commands:
        name = command.name or command.callback.__name__  # type: ignore[union-attr]  # each has one
        assert f"\n## `{name.replace('_', '-')}`\n" in text


def test_functions_that_the_configuration_page_names_exist() -> None:
    for text in configuration.INSTEAD.values():
        for name in ("list_of", "time_windowed", "session_windowed"):
            if name in text:
                assert hasattr(importlib.import_module("streams_py.serdes"), name)
