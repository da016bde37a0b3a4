"""Checked request bodies and parameters.

Functions here raise an error that names what is wrong, with its status.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from streams_py.connect.errors import BadRequestError, ConnectError
from streams_py.connect.stores.configs import TargetState
from streams_py.system.foreign_json import loads as loads_foreign
from streams_py.system.printable import printable

_INITIAL_STATES: dict[str, TargetState] = {
    "RUNNING": TargetState.STARTED,
    "PAUSED": TargetState.PAUSED,
    "STOPPED": TargetState.STOPPED,
}


class UnsupportedMediaTypeError(ConnectError):
    """The content type of the body is not JSON."""

    status: ClassVar[int] = 415


def json_of(body: bytes, content_type: str | None) -> Any:
    """Return the decoded body.

    The type must be given: browsers can send other types to other sites without permission.
    """
    kind = (content_type or "").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise UnsupportedMediaTypeError(
            f"the body must be JSON, with the header 'Content-Type: application/json' (got {kind or 'no type'})"
        )
    try:
        return loads_foreign(body)
    except ValueError as error:
        raise BadRequestError(f"the body is not valid JSON: {error}") from None


def config_of(content: Any, name: str, *, where: str = "the body") -> dict[str, str]:
    """Return a connector's configuration, including its name."""
    config = {key: _text(key, value) for key, value in _object(content, where).items()}
    if config.setdefault("name", name) != name:
        raise BadRequestError(f"name is {config['name']!r} in the configuration, but {name!r} in the request")
    return config


def patch_of(content: Any, name: str) -> dict[str, str | None]:
    """Return changes of a configuration. None removes a key."""
    patch = {k: None if v is None else _text(k, v) for k, v in _object(content, "the body").items()}
    if patch.get("name", name) != name:
        raise BadRequestError(f"the name of connector {name!r} cannot be changed")
    return patch


def task_configs_of(content: Any) -> list[dict[str, str]]:
    """Return a list of task configurations."""
    if not isinstance(content, list):
        raise BadRequestError("the body must be a JSON list of task configurations")
    return [
        {key: _text(key, value) for key, value in _object(one, f"task {number}").items()}
        for number, one in enumerate(content)
    ]


def offsets_of(content: Any) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Return the body of ``PATCH .../offsets``: (partition, offset) pairs.

    None removes an offset.
    """
    fields = _object(content, "the body")
    entries = fields.get("offsets")
    if not isinstance(entries, list) or not entries or fields.keys() - {"offsets"}:
        raise BadRequestError('the body must be {"offsets": [{"partition": {...}, "offset": {...}}, ...]}')
    changes: list[tuple[dict[str, Any], dict[str, Any] | None]] = []
    for number, entry in enumerate(entries):
        given = _object(entry, f"offsets[{number}]")
        if given.keys() != {"partition", "offset"}:
            raise BadRequestError(f"offsets[{number}] must have the fields partition and offset")
        partition, offset = _object(given["partition"], f"offsets[{number}].partition"), given["offset"]
        if any(partition == known for known, _ in changes):
            raise BadRequestError(f"offsets[{number}] repeats a partition")
        changes.append((partition, None if offset is None else _object(offset, f"offsets[{number}].offset")))
    return changes


@dataclass(frozen=True, slots=True)
class NewConnector:
    """The body of ``POST /connectors``."""

    name: str
    config: Mapping[str, str]
    state: TargetState | None

    @classmethod
    def of(cls, content: Any) -> NewConnector:
        fields = _object(content, "the body")
        unknown = sorted(fields.keys() - {"name", "config", "initial_state"})
        if unknown:
            raise BadRequestError(f"{unknown[0]!r} is not a field; the body has name, config and initial_state")
        missing = [key for key in ("name", "config") if fields.get(key) is None]
        if missing:
            raise BadRequestError(f'{missing[0]} is missing; the body is {{"name": "...", "config": {{...}}}}')
        name, state = fields["name"], fields.get("initial_state")
        if not isinstance(name, str):
            raise BadRequestError("name must be text")
        name = checked_name(name.strip())
        if state is not None and (not isinstance(state, str) or state.upper() not in _INITIAL_STATES):
            raise BadRequestError(f"initial_state {state!r} must be RUNNING, PAUSED or STOPPED")
        return cls(
            name, config_of(fields["config"], name, where="config"), _INITIAL_STATES[state.upper()] if state else None
        )


def checked_name(name: str) -> str:
    """Return a name that is valid in a URL path and in a line of a log.

    Raises BadRequestError for others.
    """
    if not name or "/" in name or name in (".", "..") or printable(name) != name or "\t" in name:
        raise BadRequestError(
            f"connector name {name[:100]!r} is empty, '.' or '..', or has a slash or control character; choose another"
        )
    return name


def flag(parameters: Mapping[str, str], key: str) -> bool:
    """Return a query parameter that is ``true`` or ``false`` (the default)."""
    value = parameters.get(key, "false").lower()
    if value not in ("true", "false"):
        raise BadRequestError(f"{key}={value} must be true or false")
    return value == "true"


def _object(content: Any, where: str) -> dict[str, Any]:
    if not isinstance(content, dict):
        raise BadRequestError(f"{where} must be a JSON object")
    return content


def _text(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (str, int, float)):
        return str(value)
    raise BadRequestError(f"the value of {key!r} must be text (numbers and booleans are converted)")
