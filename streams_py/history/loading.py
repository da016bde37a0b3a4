"""Loads a topology from user code, in the process of the user and in workers.

A topology is passed by its name, ``module:name`` or ``file.py[:name]``, or as the object itself. A name is better: the
worker imports it as the application does. An object, as in a notebook, is sent by value with everything that its
functions refer to.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from streams_py.errors import StreamsError, TopologyError
from streams_py.system.printable import named
from streams_py.topology.dsl.builder import StreamsBuilder
from streams_py.topology.topology import Topology


class TopologyNotFoundError(TopologyError):
    """The name does not refer to a topology; the message contains the reason."""


def load_topology(what: str, config: Mapping[str, object] | None = None) -> Topology:
    """Load the topology that ``module:name`` or ``file.py[:name]`` refers to.

    Args:
        what: the name.
        config: passed to ``StreamsBuilder.build`` if the name refers to a builder.

    Raises:
        TopologyNotFoundError: the name does not refer to a topology.
    """
    module_name, _, name = what.partition(":")
    is_file = module_name.endswith(".py")
    if not module_name or not (name or is_file):
        raise TopologyNotFoundError(
            f"{what!r} is neither module:name, for example my_app.main:build_topology, nor a file app.py"
        )
    found: object = _from_file(Path(module_name)) if is_file else _module(module_name)
    names = name.split(".") if name else _candidates(vars(found))
    if not name and len(names) != 1:
        choice = ", ".join(names) or "no topology, and no function build_topology"
        raise TopologyNotFoundError(f"{module_name} has {choice}: choose one with {module_name}:name")
    for part in names:
        if not hasattr(found, part):
            raise TopologyNotFoundError(f"module {module_name} has no {name}")
        found = getattr(found, part)
    try:
        topology = _topology(found, config)
    except StreamsError as error:
        raise TopologyNotFoundError(f"{what}: {error}") from None
    except (Exception, SystemExit) as error:  # building runs user code
        raise TopologyNotFoundError(f"{what} cannot be built: {_raised(error)}") from None
    if topology is None:
        raise TopologyNotFoundError(
            f"{what} is of type {type(found).__name__}; it must be a StreamsBuilder, a Topology, or a function without "
            "arguments that returns one"
        )
    return topology


def _module(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # importing runs user code
        is_away = isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}.")
        remedy = (
            f"; change to the folder that contains {name.partition('.')[0]}, or add it to PYTHONPATH" if is_away else ""
        )
        raise TopologyNotFoundError(f"module {name} cannot be imported: {_raised(error)}{remedy}") from None
    finally:
        sys.path.pop(0)


def _from_file(path: Path) -> ModuleType:
    """Import a file as a module.

    Modules that it imports from its own folder are removed from ``sys.modules`` afterwards, because another version of
    the application may have modules with the same names.
    """
    folder = str(path.resolve().parent)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise TopologyNotFoundError(f"module {path} cannot be imported: the file does not exist")
    module = importlib.util.module_from_spec(spec)
    before = dict(sys.modules)
    sys.path.insert(0, folder)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # importing runs user code
        raise TopologyNotFoundError(f"module {path} cannot be imported: {_raised(error)}") from None
    finally:
        sys.path.pop(0)
        for name in [name for name in sys.modules if sys.modules[name] is not before.get(name)]:
            if str(getattr(sys.modules[name], "__file__", None) or "").startswith(folder):
                del sys.modules[name]
                if name in before:
                    sys.modules[name] = before[name]
    return module


def _raised(error: Exception | SystemExit) -> str:
    text = named(error)
    if isinstance(error, SystemExit):  # it would stop the command with its own exit status
        return f"{text}; move the code that runs the application under if __name__ == '__main__':"
    return text


def _candidates(module: Mapping[str, object]) -> list[str]:
    """Return names that a file without ``:name`` may refer to.

    These are its topologies, otherwise its builders, otherwise functions with a usual name.
    """
    for kind in (Topology, StreamsBuilder):
        found = [name for name, value in module.items() if isinstance(value, kind)]
        if found:
            return found
    return [name for name in ("build_topology", "topology", "build") if callable(module.get(name))]


def _topology(found: object, config: Mapping[str, object] | None) -> Topology | None:
    if callable(found) and not isinstance(found, StreamsBuilder | Topology):
        found = found()
    if isinstance(found, StreamsBuilder):
        return found.build(config)
    return found if isinstance(found, Topology) else None


GivenTopology: TypeAlias = "Topology | StreamsBuilder | Callable[[], Topology | StreamsBuilder] | str"
"""A topology, a builder, a function that returns one of these, or ``module:name``."""


@dataclass(frozen=True, slots=True)
class TopologySource:
    """A topology as the user passed it, and the settings. ``topology.optimization`` matters when it is built."""

    given: Any
    config: Mapping[str, object]

    def build(self) -> Topology:
        """Build the topology in this process. Raises TopologyError when that is not possible."""
        return built(self.given, self.config)


def built(given: Any, config: Mapping[str, object]) -> Topology:
    """Return the topology that ``given`` refers to. Raises TopologyError when it does not refer to one."""
    wanted = {key: config[key] for key in ("topology.optimization",) if key in config}
    if isinstance(given, str):
        return load_topology(given, wanted)
    if callable(given) and not isinstance(given, StreamsBuilder | Topology):
        given = given()
    if isinstance(given, StreamsBuilder):
        given = given.build(wanted)
    if not isinstance(given, Topology):
        raise TopologyError(
            f"expected a Topology, a StreamsBuilder, a function that returns one, or module:name; got "
            f"{type(given).__name__}"
        )
    return given
