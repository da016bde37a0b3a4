"""The settings of an application that decide what a run over its history makes.

Between the steps of a plan they have to stay what they are: the topology may be the same, and a step that is given no
``--config``, or another one, would read other values, or pass over records that the others do not. A plan keeps marks
of them and not what they say, which may be nobody's business.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from streams_py.config.streams_config import StreamsConfig
from streams_py.errors import ConfigError

__all__ = ["check_settings", "marks_of"]

_FIELDS: Final = (
    "default_key_serde",
    "default_value_serde",
    "default_timestamp_extractor",
    "deserialization_exception_handler",
    "dsl_store_suppliers_class",  # in which order windows and sessions are listed, and so are final results
    "processing_exception_handler",
    "production_exception_handler",
    "topology_optimization",
    "upgrade_from",
)
_DIGITS: Final = 12


def marks_of(config: Mapping[str, Any]) -> dict[str, str]:
    """Key -> mark of its value, for all that decide: those of the library, with their defaults, and all of the user's
    own (``app.``)."""
    checked = StreamsConfig.of({"bootstrap.servers": "embedded", **config})
    own = {f"app.{key}": value for key, value in checked.app.items()}
    return {name.replace("_", "."): _mark(getattr(checked, name)) for name in _FIELDS} | {
        key: _mark(value) for key, value in sorted(own.items())
    }


def check_settings(marks: Mapping[str, str], config: Mapping[str, Any], plan: str) -> None:
    """ConfigError names a setting that is not what it was when ``plan`` was made."""
    now = marks_of(config)
    for key in sorted({*marks, *now}) if marks else ():
        if marks.get(key) != now.get(key):
            raise ConfigError(
                f"{key} is not what it was when {plan} was made, and decides what comes out; give the --config of then,"
                " or make a new plan",
                key=key,
            )


def _mark(value: object) -> str:
    text = getattr(value, "__qualname__", None) or repr(value)
    return hashlib.sha256(str(text).encode()).hexdigest()[:_DIGITS]
