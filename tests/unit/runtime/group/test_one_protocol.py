"""One folder of the runtime knows the classic protocol: user data, and a leader among the members."""

from __future__ import annotations

import ast
import re
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[4]
_GROUP_PACKAGES = (
    "streams_py.member",
    "streams_py.leader",
    "streams_py.assignment",
    "streams_py.runtime.group.classic",
)
_USER_DATA = re.compile(r"(de|en)code_|.*(Subscription|Assignment)Info$")
_KNOWS_THE_GROUP = {
    "streams_py/runtime/client/kafka_streams.py": {"streams_py.leader.explanations.ToldExplanation"},  # a result's type
    "streams_py/runtime/client/stream_threads.py": {"streams_py.leader.explanations.ToldExplanation"},
    "streams_py/runtime/thread/stream_thread.py": {"streams_py.leader.explanations.ToldExplanation"},
    "streams_py/runtime/group/transport.py": {"streams_py.leader.explanations.ToldExplanation"},
    "streams_py/runtime/commit/open_transactions.py": {"streams_py.assignment.java_order.string_hash"},  # Kafka's hash
    "streams_py/runtime/wiring/shared.py": {  # chooses the protocol
        "streams_py.runtime.group.classic.opening.ClassicProtocol",
        "streams_py.runtime.group.classic.opening.check_assignor",
    },
}
"""Modules of the runtime outside ``group/classic/`` that import a part of the classic protocol, with the names."""


def _group_imports(source: str) -> set[str]:
    """Return the imports of the two halves of the assignment protocol, and of the codecs of user data."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith(_GROUP_PACKAGES)}
        elif isinstance(node, ast.ImportFrom):
            module = str(node.module)
            if module.startswith(_GROUP_PACKAGES) and module != "streams_py.member.tasks":
                found |= {f"{module}.{alias.name}" for alias in node.names}
            elif module.startswith("streams_protocol"):
                found |= {f"{module}.{alias.name}" for alias in node.names if _USER_DATA.match(alias.name)}
    return found


def test_classic_protocol_is_known_to_one_folder_of_the_runtime() -> None:
    """A second group transport has no leader among its members and no user data."""
    paths = sorted((_ROOT / "streams_py/runtime").rglob("*.py"))
    found = {path.relative_to(_ROOT).as_posix(): _group_imports(path.read_text(encoding="utf-8")) for path in paths}
    outside = {name: names for name, names in found.items() if names and "/runtime/group/classic/" not in name}
    assert outside == _KNOWS_THE_GROUP


def test_check_of_the_classic_protocol_notices_imports() -> None:
    source = "from streams_py.member.tasks import Tasks\nfrom streams_py.member.member import Member\n"
    source += (
        "def f():\n    from streams_protocol import TaskId, decode_subscription\n    import streams_py.leader.leader\n"
    )
    assert _group_imports(source) == {
        "streams_py.member.member.Member",
        "streams_protocol.decode_subscription",
        "streams_py.leader.leader",
    }
