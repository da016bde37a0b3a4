"""The pages made from code have everything, and say it."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree as ET

import pytest

import streams_py
from docs.tools import configuration, pictures
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


def test_every_error_says_what_to_do_itself_or_in_a_base() -> None:
    public = (getattr(streams_py, name) for name in streams_py.__all__)
    kinds = {value for value in public if isinstance(value, type) and issubclass(value, StreamsError)}
    kinds |= {getattr(streams_py.errors, name) for name in streams_py.errors.__all__}
    silent = {
        kind.__name__
        for kind in kinds
        if not any("What to do: " in (base.__doc__ or "") for base in kind.__mro__ if base is not StreamsError)
    }
    assert silent == {"StreamsError"}


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


def test_command_line_page_has_every_command_with_its_options() -> None:
    import typer.main

    from streams_py.cli.commands import app

    text = GENERATED["reference/command-line.md"]()
    commands = list(_commands(typer.main.get_command(app), "streams-py"))
    assert len(commands) > 30
    for path, command in commands:
        entry = text.partition(f"# `{path}`\n")[2].partition("\n## ")[0].partition("\n### ")[0]
        assert f"\n$ {path} " in entry
        options = [name for option in command.params for name in option.opts if name.startswith("--")]
        assert [name for name in options if name not in entry] == []


def _commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, below in getattr(command, "commands", {}).items():
        yield f"{path} {name}", below
        yield from _commands(below, f"{path} {name}")


def test_examples_of_the_command_line_page_are_blocks() -> None:
    text = GENERATED["reference/command-line.md"]()
    assert "```text\nstreams-py run app.py --set application.id=word-count" in text
    blocks = re.findall(r"^```\w+\n.*?^```$", text, re.DOTALL | re.MULTILINE)
    outside = re.sub(r"^```\w+\n.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert len(blocks) > 60
    assert not re.search(r"^ *streams-py ", outside, re.MULTILINE)
    assert "&" not in "".join(block for block in blocks if block.startswith("```text")).replace("&&", "")


def test_functions_that_the_configuration_page_names_exist() -> None:
    for text in configuration.INSTEAD.values():
        for name in ("list_of", "time_windowed", "session_windowed"):
            if name in text:
                assert hasattr(importlib.import_module("streams_py.serdes"), name)
