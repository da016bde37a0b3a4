"""Pages of the public API, made from docstrings and signatures."""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from importlib.resources import files
from itertools import pairwise
from typing import Any, Final

from streams_py.ports import RawRecord

_LINE_CHARS_MAX: Final = 100


class Area:
    """A page with the public names of some modules; ``first``: the names at its beginning."""

    def __init__(self, title: str, intro: str, *modules: str, first: tuple[str, ...] = ()) -> None:
        self.title, self.intro, self.modules, self.first = title, intro, modules, first


AREAS: Final = {
    "kafka-streams": Area(
        "KafkaStreams and configuration",
        "Start an application, watch it, and write its handlers. All names are in `streams_py`.",
        "*",
        first=("KafkaStreams", "StreamsConfig", "State"),
    ),
    "dsl": Area(
        "Streams, tables and windows",
        "The parts of a topology, from `streams_py`.",
        *("streams_py.topology.dsl", "streams_py.topology.declare.windows", "streams_py.serdes.windowed"),
        "streams_py.topology.declare.in_context",
        first=("StreamsBuilder", "KStream", "KTable", "KGroupedStream", "TimeWindows"),
    ),
    "processors": Area(
        "Topology and processors",
        "The Processor API, and methods of a topology, from `streams_py`.",
        *("streams_py.topology.declare.processor", "streams_py.topology.declare.nodes", "streams_py.topology.topology"),
        "streams_py.topology.upgrade",
        first=("Processor", "ProcessorContext", "Record", "Topology"),
    ),
    "stores": Area(
        "Stores and queries",
        "State for processors, and queries from outside, from `streams_py`.",
        *("streams_py.topology.declare.stores", "streams_py.topology.declare.window_stores"),
        *("streams_py.topology.declare.versioned_stores", "streams_py.topology.declare.custom_stores"),
        "streams_py.state",
    ),
    "serdes": Area(
        "Serdes", "From `streams_py.serdes`; `SchemaRegistry` from `streams_py`.", "=streams_py.serdes",
        "streams_py.registry", "streams_py.serdes.serde",
    ),
    "errors": Area("Errors", "From `streams_py`, or `streams_py.errors`.", "streams_py.errors"),
    "assignment": Area("Task assignment", "From `streams_py.assignment` (KIP-924).", "=streams_py.assignment"),
    "testing": Area(
        "Testing",
        "From `streams_py.testing`; brokers are from `streams_py.testing.broker`, contracts of stores from "
        "`streams_py.testing.store_contract`.",
        *("=streams_py.testing", "=streams_py.testing.broker", "=streams_py.testing.store_contract"),
    ),
    "simulator": Area(
        "Groups in virtual time", "From `streams_py.testing.simulator`; `streams-py simulate` uses it.",
        "=streams_py.testing.simulator",
    ),
    "spark": Area(
        "History on Spark",
        "From `streams_py.spark` (extra `spark`). [The guide](../../spark-history.md) describes `preview`, which "
        "consists of classes of PySpark.",
        *("=streams_py.spark:run", "=streams_py.spark:Results"),
    ),
    "backtest": Area(
        "Backtest",
        "From the modules of `streams_py.backtest`: the parts of [a backtest from Python](../../backtest.md).",
        "=streams_py.backtest.sources:situations_in", "=streams_py.backtest.sources:Skipped",
        "=streams_py.backtest.candidates:Candidate", "=streams_py.backtest.candidates:parse_candidate",
        "=streams_py.backtest.kernel:Orders", "=streams_py.backtest.run:evaluate_locally",
        "=streams_py.backtest.summary:Summary", "=streams_py.backtest.verdict:verdict_of",
        "=streams_py.backtest.verdict:Verdict",
    ),
    "query": Area("Queries over HTTP", "From `streams_py.query` (extra `query`).", "=streams_py.query"),
    "metrics": Area("Metrics", "From `streams_py.metrics` (extra `metrics`).", "=streams_py.metrics"),
    "connectors": Area("Connectors", "From `streams_py.connect.api`.", "=streams_py.connect.api"),
}  # fmt: skip
"""Page -> its contents.

``=module`` means all names in the module's ``__all__``, ``=module:name`` one of them. Other modules mean the names of
``streams_py`` that they define. ``*`` means the names that are on no other page.
"""


def homes() -> dict[str, str]:
    """Return the public names of ``streams_py`` and the module that defines each."""
    stub = files("streams_py").joinpath("__init__.pyi").read_text(encoding="utf-8")
    return {name: module for module, name in re.findall(r"^from (\S+) import (\w+) as \w+$", stub, re.MULTILINE)}


def pages() -> dict[str, Callable[[], str]]:
    """Address below ``docs/`` -> what writes the page."""
    return {f"reference/api/{name}.md": partial(_page, area) for name, area in AREAS.items()}


def names_of(area: Area) -> list[tuple[str, str]]:
    """(Module, name) of everything on a page, in the order of the stub or of ``__all__`` behind the first ones."""
    found: dict[str, str] = {}
    for module in area.modules:
        if module.startswith("="):
            home, _, only = module[1:].partition(":")
            found |= dict.fromkeys([only] if only else importlib.import_module(home).__all__, home)
        else:
            inside = _elsewhere if module == "*" else partial(_lives_in, module)
            found |= {name: at for name, at in homes().items() if inside(at)}
    assert found.keys() >= set(area.first), area.title
    return [(found[name], name) for name in (*area.first, *(name for name in found if name not in area.first))]


def _lives_in(module: str, home: str) -> bool:
    return home == module or home.startswith(f"{module}.")


def _elsewhere(home: str) -> bool:
    """A home that no other page is about; modules themselves have none."""
    named = [module for area in AREAS.values() for module in area.modules if not module.startswith(("=", "*"))]
    return home != "streams_py" and not any(_lives_in(module, home) for module in named)


def _page(area: Area) -> str:
    parts = [f"# {area.title}\n\n{area.intro}\n"]
    for module, name in names_of(area):
        parts.extend(_entry(name, getattr(importlib.import_module(module), name), module))
    return "\n".join(parts)


def _entry(name: str, value: Any, module: str) -> Iterator[str]:
    yield f"## `{name}`\n"
    if inspect.isclass(value):
        yield from _class(name, value)
    elif inspect.isroutine(value):
        yield _signature(name, value)
        yield markdown(inspect.getdoc(value) or "")
    else:
        ours = type(value).__module__.startswith("streams_py")
        short = _readable(str(value)).replace("'", "")
        texts = [
            _text_below(homes().get(name, module), name),
            inspect.cleandoc(type(value).__doc__ or "") if ours else "",
        ]
        yield markdown("\n\n".join(filter(None, texts)) or f"Short for ``{short}``.")


def _class(name: str, value: type) -> Iterator[str]:
    if not issubclass(value, enum.Enum | BaseException) and not inspect.isabstract(value) and "Protocol" not in {
        base.__name__ for base in value.__bases__
    } and "place" not in inspect.signature(value).parameters:  # fmt: skip  # the DSL creates those with a place
        yield _signature(name, value)
    yield markdown(inspect.getdoc(value) or "")
    if issubclass(value, enum.Enum):
        yield "Members: " + ", ".join(f"`{member}`" for member in value.__members__) + ".\n"
        return
    for member, found in members_of(value):
        kind = found.fget if isinstance(found, property) else getattr(value, member)
        text = inspect.getdoc(found) or inspect.getdoc(kind) or ""
        if text or value is RawRecord:  # its docstring describes the accessors
            yield f"### `{name}.{member}`\n"
            yield f"```text\n{member}\n```\n" if isinstance(found, property) else _signature(member, kind)
            yield markdown(text)


def members_of(value: type) -> Iterator[tuple[str, Any]]:
    """Yield public methods and properties, including inherited ones from our own base classes."""
    seen: set[str] = set()
    for base in value.__mro__:
        if not base.__module__.startswith(("streams_py", "streams_protocol")):
            continue
        for member, found in vars(base).items():
            is_callable = inspect.isroutine(found) or isinstance(found, property | classmethod | staticmethod)
            if is_callable and not member.startswith("_") and member not in seen:
                seen.add(member)
                yield member, found


def _signature(name: str, value: Any) -> str:
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    parameters = [p for p in found.parameters.values() if p.name not in ("self", "cls")]
    plain = found.replace(parameters=parameters)
    text = name + _readable(str(plain))
    if len(text) > _LINE_CHARS_MAX:
        lines = [_readable(str(found.replace(parameters=[p], return_annotation=found.empty))[1:-1]) for p in parameters]
        result = "" if found.return_annotation is found.empty else f" -> {_readable(str(found.return_annotation))}"
        text = f"{name}(\n" + "".join(f"    {line},\n" for line in _with_marks(lines, parameters)) + f"){result}"
    return f"```text\n{text}\n```\n"


def _with_marks(lines: list[str], parameters: list[inspect.Parameter]) -> Iterator[str]:
    """The parameters one by one, with ``/`` and ``*`` where they belong."""
    kinds = [parameter.kind for parameter in parameters]
    for number, (line, kind) in enumerate(zip(lines, kinds, strict=True)):
        if kind is inspect.Parameter.KEYWORD_ONLY:
            line = line.removeprefix("*, ")
            if not any(before in (kind, inspect.Parameter.VAR_POSITIONAL) for before in kinds[:number]):
                yield "*"
        yield line.removesuffix(", /")
        if kind is inspect.Parameter.POSITIONAL_ONLY and kinds[number + 1 : number + 2] != [kind]:
            yield "/"


def _readable(text: str) -> str:
    """Annotations are text in our modules; a reader wants them without quotes and module names."""
    text = re.sub(r"<function [^ ]*<lambda> at 0x[0-9a-f]+>", "...", text)
    text = re.sub(r"ForwardRef\('([^']*)'\)", r"\1", text)
    text = re.sub(r"(?<=[:>] )'([^']*)'", r"\1", text)
    text = re.sub(r"\b(?:streams_py|streams_protocol|collections\.abc|typing)(?:\.\w+)*\.(?=[A-Z])", "", text)
    text = re.sub(r"<(\w+\.\w+): [^>]*>", r"\1", text).replace("= <factory>", "= {}")
    return re.sub(r"<([\w.]+) object at 0x[0-9a-f]+>|<(?:function|class) '?([\w.]+)[^>]*>", r"\1\2", text)


def markdown(docstring: str) -> str:
    """A docstring of ours as Markdown: double back-quotes and roles become code, indented blocks stay code."""
    text = re.sub(r":mod:`([^`]*)`", r"`\1`", docstring)
    text = re.sub(r":(?:class|meth|func|attr|data|exc):`~?([^`]*)`", lambda m: f"`{_short(m[1])}`", text)
    text = re.sub(r"::$", ":", text, flags=re.MULTILINE).replace("``", "`")
    text = re.sub(r"(?m)^(?=\* )", "\n", text) if "\n* " in text and "\n\n* " not in text else text
    text = re.sub(r"(?m)^(Args|Attributes|Raises|Returns):\n((?:    .*\n?)+)", lambda m: _section(m[1], m[2]), text)
    return textwrap.dedent(text).strip() + "\n"


def _section(title: str, block: str) -> str:
    """Return a Google section as a list, with each name as code. A section without names stays one paragraph."""
    entries = re.split(r"(?m)^(?=\S)", textwrap.dedent(block).strip())
    items = [re.sub(r"^(\*{0,2}[\w.]+): ", r"`\1`: ", " ".join(entry.split())) for entry in entries if entry]
    if not all(item.startswith("`") for item in items):
        return f"{title}: {' '.join(items)}\n"
    heading = "Arguments" if title == "Args" else title
    return "\n".join([f"{heading}:", "", *(f"* {item}" for item in items), ""])


def _short(target: str) -> str:
    """``streams_py.errors.ConfigError`` -> ``ConfigError``; ``a.b.KStream.map`` -> ``KStream.map``."""
    parts = target.split(".")
    first = next((number for number, part in enumerate(parts) if part[:1].isupper()), len(parts) - 1)
    return ".".join(parts[first:])


def _text_below(module: str, name: str) -> str:
    """The text below the line that makes a constant, in the module that it comes from."""
    body = ast.parse(inspect.getsource(importlib.import_module(module))).body
    for statement, below in pairwise([*body, ast.Pass()]):
        match statement:
            case ast.Assign(targets=[ast.Name(id=made)]) | ast.AnnAssign(target=ast.Name(id=made)) if made == name:
                text = below.value if isinstance(below, ast.Expr) else None
                return inspect.cleandoc(str(text.value)) if isinstance(text, ast.Constant) else ""
            case ast.ImportFrom(module=str(home), names=aliases) if name in [alias.name for alias in aliases]:
                return _text_below(home, name)
    return ""
