"""The configuration of a connector as a pydantic model.

Keys are dotted. Errors name the key and the remedy.

A field ``batch_rows`` has the key ``batch.rows``. Values of a connector's configuration are text. Other keys belong to
the worker (``tasks.max``, converters, ...). A key that is almost the name of a field is an error.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, SecretStr, ValidationError

from streams_py.errors import ConfigError

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
"""Names from comma-separated text."""


class ConnectorSettings(BaseModel):
    """Base class for the settings of a connector and of its tasks."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", hide_input_in_errors=True, alias_generator=lambda field: field.replace("_", ".")
    )

    @classmethod
    def of(cls, props: Mapping[str, str]) -> Self:
        """Return the settings. ConfigError names the first wrong key, and what to write instead."""
        problems = cls.problems(props)
        for key, sentences in problems.items():
            raise ConfigError(f"{key}: {sentences[0]}", key=key)
        return cls.model_validate(dict(props))

    @classmethod
    def problems(cls, props: Mapping[str, str]) -> dict[str, list[str]]:
        """Return what is wrong, as sentences by key, for ``Connector.validate``.

        Hides values of secrets.
        """
        found: dict[str, list[str]] = {}
        keys = [field.alias or name for name, field in cls.model_fields.items()]
        for key in sorted(props.keys() - set(keys) - _WORKERS):
            near = [] if key.startswith(_WORKERS_PREFIXES) else difflib.get_close_matches(key, keys, 1, 0.7)
            if near and near[0] not in props:
                found[key] = [f"unknown key; did you mean {near[0]}?"]
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
    """Base class for connectors whose tasks all have the connector's configuration.

    List it before the other base.
    """

    version = "1"
    settings_class: ClassVar[type[ConnectorSettings]]
    tasks_max: ClassVar[int | None] = None
    """Maximum number of tasks. None: as many as the user allows."""

    def start(self, props: Mapping[str, str]) -> None:
        """Check and store the configuration. Raises ConfigError."""
        self.settings_class.of(props)
        self._props = dict(props)

    def stop(self) -> None:
        """Do nothing: all work is in tasks."""

    def task_configs(self, max_tasks: int) -> list[dict[str, str]]:
        """Return a copy of the configuration for each task."""
        return [dict(self._props) for _ in range(self.tasks_max or max_tasks)]

    def validate(self, props: Mapping[str, str]) -> dict[str, list[str]]:
        """Return what is wrong, as sentences by key."""
        return self.settings_class.problems(props)
