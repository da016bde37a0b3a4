"""The page of all classes and methods of Kafka Streams, with their counterparts here."""

from __future__ import annotations

import json
import re
from itertools import groupby
from pathlib import Path
from typing import Final

from docs.tools.java_names import CLASSES

JAVA: Final[dict[str, list[str]]] = json.loads(Path(__file__).with_name("java_api.json").read_text(encoding="utf-8"))
"""Public class of Apache Kafka Streams 4.3.1 and of its test kit -> its methods (``JavaApi.java`` prints it)."""

_INTRO: Final = """# Every class of Kafka Streams

On this page you can look up the counterpart of every public class of Kafka Streams 4.3.1 and of its test kit, with all
methods that are not deprecated. To translate a program, [Coming from Java](../coming-from-java.md) is shorter.

Names are in `streams_py`, or in its modules `testing`, `assignment`, `errors` and `serdes`. Java's getters are
attributes here.
"""


def page() -> str:
    """The whole page."""
    parts = [_INTRO]
    for package, classes in groupby(sorted(JAVA, key=lambda name: (_package(name), name)), key=_package):
        whole = ".".join(filter(None, ("org.apache.kafka.streams", package)))
        parts.append(f"\n## `{whole}`\n\n| Java | here | methods |\n|---|---|---|\n")
        parts += [
            f"| `{name.removeprefix(f'{package}.')}` | {CLASSES[name][0]} | {_methods(name)} |\n" for name in classes
        ]
    return "".join(parts)


def home(name: str) -> str:
    """Return our class that has the methods of a Java class, or an empty text."""
    found = re.search(r"`([\w.]+)`", CLASSES[name][0])
    return found[1] if found else ""


def here(name: str, method: str) -> str:
    """Return the counterpart of a Java method, as Markdown."""
    said = CLASSES[name][1]
    snake_case = re.sub(r"([A-Z])", lambda letter: f"_{letter[1].lower()}", method)
    return said.get(method) or said.get("*") or f"`{home(name)}.{snake_case}`"


def _package(name: str) -> str:
    return ".".join(part for part in name.split(".") if part[0].islower())


def _methods(name: str) -> str:
    """Return all methods, grouped by their counterpart."""
    together: dict[str, list[str]] = {}
    for method in JAVA[name]:
        together.setdefault(here(name, method), []).append(f"`{method}`")
    return "<br>".join(f"{', '.join(methods)}: {text}" for text, methods in together.items())
