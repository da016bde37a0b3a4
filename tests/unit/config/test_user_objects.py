"""Settings and commands that name modules of the user: an error during an import is reported with the module's name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from streams_py.adapters.security.settings import parse_security
from streams_py.assignment.assignors.registry import choose_assignor
from streams_py.backtest.candidates import choose, parse_candidate
from streams_py.connect.policy.classes import load
from streams_py.errors import StreamsError
from streams_py.history.loading import load_topology
from streams_py.runtime.tasks.settings.configured import resolve_extractor
from streams_py.serdes import resolve_serde

LOADERS: dict[str, Callable[[str], object]] = {
    "topology of a module": lambda module: load_topology(f"{module}:build"),
    "topology of a file": lambda module: load_topology(f"{module}.py:build"),
    "assignor": lambda module: choose_assignor(f"{module}:Mine"),
    "candidate of a backtest": lambda module: choose(parse_candidate(f"mine={module}.py:Mine")),
    "extractor": lambda module: resolve_extractor(f"{module}:extract"),
    "serde": lambda module: resolve_serde(f"{module}:SERDE", setting="default.key.serde"),
    "connector": lambda module: load("connector.class", f"{module}:Mine"),
    "token source": lambda module: parse_security(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.source": f"{module}:token",
        }
    ),
}


@pytest.mark.parametrize("kind", LOADERS)
@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("ends_the_program", "raise SystemExit(0)\n", "SystemExit: 0"),
        ("is_no_python", "def (\n", "SyntaxError"),
        ("fails_itself", "raise LookupError('of its own')\n", "LookupError: of its own"),
    ],
)
def test_module_that_cannot_be_loaded_is_named_with_what_it_raised(
    kind: str, name: str, text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(StreamsError) as raised:
        LOADERS[kind](name)
    assert name in str(raised.value)
    assert said in str(raised.value)
