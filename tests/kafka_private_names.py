"""Private names of kafka-python that the membership uses: ``python -m tests.kafka_private_names`` writes the table.

The table has a fingerprint of the code of each name (attributes have none). If a new release removes or changes one of
them, a developer must check the use before the pin in ``pyproject.toml`` is changed.

"""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import json
import textwrap
from functools import cache
from pathlib import Path
from typing import Any, Final

TABLE: Final = Path(__file__).with_name("kafka_private_names.json")
_ADAPTERS: Final = Path(__file__).resolve().parents[1] / "streams_py" / "adapters"
_FILES: Final = [
    *sorted((_ADAPTERS / "kafka_python").rglob("*.py")),
    *(
        _ADAPTERS / name
        for name in ("connection/kafka_answers.py", "connection/direct_requests.py", "transactional_records.py")
    ),
]
_COORDINATORS: Final = ("classic.coordinator:StreamsCoordinator", "connect_coordinator:_Base")
_COORDINATOR: Final = "kafka.coordinator.base:BaseCoordinator"
OTHERS: Final = {
    "_async_get_leader_for_partitions": "kafka.admin.client:KafkaAdminClient",
    "_class_version": "kafka.protocol.api_message:ApiMessage",
    "_close_heartbeat": _COORDINATOR,
    "_cluster": _COORDINATOR,
    "_commit_offsets_sync_async": "kafka.coordinator.consumer:ConsumerCoordinator",
    "_conns": "kafka.net.manager:KafkaConnectionManager",
    "_exception": "kafka.net.selector:NetworkSelector",
    "_failed_request": _COORDINATOR,
    "_find_coordinator_id": "kafka.admin.client:KafkaAdminClient",
    "_find_coordinator_ids": "kafka.admin.client:KafkaAdminClient",
    "_generation": _COORDINATOR,
    "_handle_offset_fetch_response": "kafka.coordinator.consumer:ConsumerCoordinator",
    "_heartbeat_loop_future": _COORDINATOR,
    "_io_thread": "kafka.net.selector:NetworkSelector",
    "_join_task": _COORDINATOR,
    "_manager": "kafka.net.compat:KafkaNetClient",
    "_maybe_start_heartbeat_loop": _COORDINATOR,
    "_net": "kafka.net.compat:KafkaNetClient",
    "_partitions": "kafka.cluster:ClusterMetadata",
    "_read_task": "kafka.net.transport:KafkaTCPTransport",
    "_refresh_loop_future": "kafka.cluster:ClusterMetadata",
    "_response_class_registry": "kafka.protocol.api_header:ResponseClassRegistry",
    "_send_heartbeat_request": _COORDINATOR,
    "_struct": "kafka.protocol.data_container:DataContainer",
    "_task_done": "kafka.net.selector:NetworkSelector",
    "_write_buffer": "kafka.net.transport:KafkaTCPTransport",
    "_write_task": "kafka.net.transport:KafkaTCPTransport",
}
"""Private names that are used on objects other than ``self``, and their classes."""


@cache
def used_names() -> dict[str, str]:
    """Return ``module:Class.name`` -> fingerprint of the private names of kafka-python that are used."""
    found: dict[str, str] = {}
    for where in _COORDINATORS:
        module, _, name = where.partition(":")
        ours = getattr(importlib.import_module(f"streams_py.adapters.kafka_python.{module}"), name)
        for attribute in _private_names(ours):
            owner = next((base for base in ours.__mro__ if _is_theirs(base) and _has(base, attribute)), None)
            if owner is not None:
                found[f"{owner.__module__}:{owner.__qualname__}.{attribute}"] = _fingerprint(owner, attribute)
    for attribute in names_of_others() & set(OTHERS):
        module, _, name = OTHERS[attribute].partition(":")
        owner = getattr(importlib.import_module(module), name)
        if _has(owner, attribute):
            found[f"{module}:{name}.{attribute}"] = _fingerprint(owner, attribute)
    return dict(sorted(found.items()))


def _is_theirs(base: type) -> bool:
    return base.__module__.partition(".")[0] == "kafka"


def _private_names(ours: type) -> set[str]:
    """Return the private names that one of our classes defines or uses on ``self``."""
    names: set[str] = set()
    for base in ours.__mro__:
        if base.__module__.startswith("streams_py"):
            tree = ast.parse(textwrap.dedent(_source(base)))
            names |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
            names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _of_self(node)}
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def _of_self(node: ast.Attribute) -> bool:
    owner = node.value
    if isinstance(owner, ast.Name):
        return owner.id in ("self", "cls")
    return isinstance(owner, ast.Call) and isinstance(owner.func, ast.Name) and owner.func.id == "super"


def names_of_others() -> set[str]:
    """Return the private names that the adapters use on objects other than ``self``."""
    nodes = [node for path in _FILES for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    used = [node.attr for node in nodes if isinstance(node, ast.Attribute) and not _of_self(node)]
    return {name for name in used if name.startswith("_") and not name.startswith("__")}


def _has(base: type, attribute: str) -> bool:
    return attribute in vars(base) or f"self.{attribute} =" in _source(base)


@cache
def _source(base: type) -> str:
    return inspect.getsource(base)  # which parses the whole module


def _fingerprint(owner: type, attribute: str) -> str:
    """Return the fingerprint of a function's source; empty for an attribute."""
    value: Any = vars(owner).get(attribute)
    function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    if not inspect.isfunction(function):
        return ""
    return hashlib.sha256(textwrap.dedent(inspect.getsource(function)).encode()).hexdigest()[:12]


if __name__ == "__main__":
    TABLE.write_text(json.dumps(used_names(), indent=1) + "\n", encoding="utf-8")
