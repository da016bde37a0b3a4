"""The configuration of a connector as a pydantic model: dotted keys, and errors that name key and remedy.

A field ``batch_rows`` is the key ``batch.rows``. Values of connectors are text. What is not a field is left to the
worker (``tasks.max``, converters, ...), but for a key that is nearly a field: that is a mistake.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, SecretStr, ValidationError

from streams_py.errors import ConfigError

__all__ = ["ConnectorSettings", "Names", "WithSettings"]

_WORKERS: Final = frozenset(
    {
        "name",
        "connector.class",
        "task.class",
        "tasks.max",
        "tasks.max.enforce",
        "topics",
        "topics.regex",
        "key.converter",
        "value.converter",
        "errors.tolerance",
    }
)
_WORKERS_PREFIXES: Final = ("producer.override.", "consumer.override.", "key.converter.", "value.converter.")


def _names(value: object) -> object:
    return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
"""Comma-separated text."""


class ConnectorSettings(BaseModel):
    """Base of the settings of a connector and of its tasks."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", hide_input_in_errors=True, alias_generator=lambda field: field.replace("_", ".")
    )

    @classmethod
    def of(cls, props: Mapping[str, str]) -> Self:
        """The settings; ConfigError names the first key that cannot be used, and what to write instead."""
        problems = cls.problems(props)
        for key, sentences in problems.items():
            raise ConfigError(f"{key}: {sentences[0]}", key=key)
        return cls.model_validate(dict(props))

    @classmethod
    def problems(cls, props: Mapping[str, str]) -> dict[str, list[str]]:
        """What is wrong: sentences by key, as ``Connector.validate`` wants them. Values of secrets are not shown."""
        found: dict[str, list[str]] = {}
        keys = [field.alias or name for name, field in cls.model_fields.items()]
        for key in sorted(props.keys() - set(keys) - _WORKERS):
            near = [] if key.startswith(_WORKERS_PREFIXES) else difflib.get_close_matches(key, keys, 1, 0.7)
            if near and near[0] not in props:
                found[key] = [f"no such key; did you mean {near[0]}?"]
        try:
            cls.model_validate(dict(props))
        except ValidationError as error:
            for detail in error.errors(include_input=False, include_url=False):
                key = str(detail["loc"][0]) if detail["loc"] else cls.__name__
                found.setdefault(key, []).append(cls._sentence(key, dict(detail), props))
        return found

    @classmethod
    def _sentence(cls, key: str, detail: dict[str, Any], props: Mapping[str, str]) -> str:
        message = str(detail["msg"]).removeprefix("Value error, ")
        what = next((field.description for n, field in cls.model_fields.items() if (field.alias or n) == key), None)
        remedy = f" ({what})" if what else ""
        if detail["type"] == "missing":
            return f"is required{remedy}"
        secret = any(SecretStr in (f.annotation, *getattr(f.annotation, "__args__", ())) for n, f in
                     cls.model_fields.items() if (f.alias or n) == key)  # fmt: skip
        value = "" if secret or key not in props else f"{props[key]!r} cannot be used: "
        return f"{value}{message[:1].lower()}{message[1:]}{remedy}"


class WithSettings:
    """What a connector does whose tasks all have its own configuration; stands before the kind."""

    version = "1"
    settings_class: ClassVar[type[ConnectorSettings]]
    tasks_max: ClassVar[int | None] = None
    """None: as many tasks as the user allows."""

    def start(self, props: Mapping[str, str]) -> None:
        """Raises ConfigError."""
        self.settings_class.of(props)
        self._props = dict(props)

    def stop(self) -> None:
        """Nothing runs outside of tasks."""

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """A copy of the configuration for each task."""
        return [dict(self._props) for _ in range(self.tasks_max or max_tasks)]

    def validate(self, props: Mapping[str, str]) -> dict[str, list[str]]:
        """What is wrong, by key."""
        return self.settings_class.problems(props)
