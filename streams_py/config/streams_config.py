"""Configuration with Kafka's dotted keys, validated once before anything starts.

A configuration comes from a mapping of dotted keys, from keyword arguments (with underscores instead of dots:
``producer_linger_ms``), or from a ``.toml`` or ``.properties`` file. Keyword arguments have precedence. The value None
selects the default. Defaults are those of Apache Kafka Streams, except for ``commit.interval.ms`` on the embedded
cluster.

There are four groups of keys:

* Keys of Kafka Streams itself: the fields of :class:`StreamsConfig`.
* Keys of the Kafka clients, such as ``security.protocol`` or ``session.timeout.ms``. They apply to every client. With a
  prefix (``main.consumer.``, ``restore.consumer.``, ``global.consumer.``, ``consumer.``, ``producer.``, ``admin.``,
  ``assignment.events.producer.``) they apply only to that client, and are not checked against the list of known keys.
* ``topic.<key>`` (configuration of internal topics) and ``client.tag.<key>`` (KIP-708).
* ``app.<anything>``: settings of the application, passed unchanged to processors and assignors.

Any other key raises a :class:`~streams_py.errors.ConfigError` that names the most similar known key. Secrets are masked
in every message and in ``repr``.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError, field_validator, model_validator

from streams_protocol.task_list import STATIC_TASKS, TaskList
from streams_py.config.client_keys import CLIENT_PREFIXES, ClientRole
from streams_py.config.endpoint import parse_endpoint
from streams_py.config.fields import INT32_MAX, ConfigFields, dotted, texts
from streams_py.config.files import read_config_file
from streams_py.config.help import ExplainedKeys, key_of
from streams_py.config.keys import CLIENT_KEYS, INSTEAD, PREFIXES, RENAMED, masked, shown
from streams_py.errors import ConfigError

__all__ = ["EMBEDDED_COMMIT_INTERVAL_MS", "StreamsConfig", "known_keys"]

_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_ADDRESS: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^:\s/,]+):(?P<port>\d{1,5})")
_EMBEDDED: Final = re.compile(r"embedded(://[A-Za-z0-9_-]{0,32})?")
_UPGRADE_FROM: Final = (
    {"0.10.0", "0.10.1", "0.10.2", "0.11.0", "1.0", "1.1"}
    | {f"2.{minor}" for minor in range(9)}
    | {f"3.{minor}" for minor in range(10)}
    | {f"4.{minor}" for minor in range(4)}
)
# KIP-708's limits.
_TAGS_MAX, _TAG_KEY_CHARS_MAX, _TAG_VALUE_CHARS_MAX = 5, 20, 30

EMBEDDED_COMMIT_INTERVAL_MS: Final = 200
"""Default of ``commit.interval.ms`` on the embedded cluster. Short, so that results of experiments appear quickly."""

_EXACTLY_ONCE_COMMIT_INTERVAL_MS: Final = 100
"""Default of ``commit.interval.ms`` with exactly-once. Short, because results become visible only with a commit."""
_TRANSACTION_TIMEOUT_MS: Final = 30_000
"""Default of ``transaction.timeout.ms``. Kafka Streams has 10 s.

librdkafka uses the older transaction protocol. With it, a broker that was killed and comes back after a transaction has
timed out may end the transaction without informing the partitions, which are then blocked. On the other hand, the open
transaction of a process that never comes back blocks its partitions for this time.
"""


class _CompleteMessageError(ValueError):
    """An error with a complete message, about several keys or about a key without a field."""

    def __init__(self, message: str, *, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key


class StreamsConfig(ConfigFields, metaclass=ExplainedKeys):
    """A validated configuration.

    ``StreamsConfig.of`` creates one from a mapping with dotted keys, a ``.toml`` or ``.properties`` file, or keyword
    arguments: ``StreamsConfig.of("app.toml", num_stream_threads=2)``. A ConfigError names the first invalid setting.

    Attributes are the dotted keys with underscores, for example ``config.num_stream_threads``. In addition to the keys
    below there are:

    * ``clients``: the keys of the Kafka clients (dotted, with prefixes such as ``producer.``)
    * ``topics``: ``topic.<key>`` for internal topics
    * ``client_tags``: ``client.tag.<key>``
    * ``app``: ``app.<anything>``, the settings of the application
    """

    # -- construction ----------------------------------------

    @classmethod
    def of(
        cls, source: StreamsConfig | Mapping[str, Any] | str | os.PathLike[str] | None = None, /, **values: Any
    ) -> StreamsConfig:
        """Create a configuration.

        Args:
            source: A mapping with dotted keys, or the path of a ``.toml`` or ``.properties`` file.
            **values: Further settings, with underscores instead of dots. They have precedence over ``source``.

        Raises:
            ConfigError: A setting is not valid.
        """
        if isinstance(source, StreamsConfig):
            given = dict(source.original)
        elif source is None:
            given = {}
        elif isinstance(source, Mapping):
            given = {str(key): value for key, value in source.items()}
        else:
            given = read_config_file(Path(source))
        return cls._check({**_canonical(given), **_canonical(values, spelt_with_underscores=True)})

    @classmethod
    def _check(cls, given: dict[str, Any]) -> StreamsConfig:
        own: dict[str, Any] = {"clients": {}, "topics": {}, "client_tags": {}, "app": {}, "original": dict(given)}
        known = known_keys()
        for key, value in given.items():
            if key in known:
                own[key] = value
            elif key in PREFIXES:
                raise ConfigError(f"unknown configuration key {key!r}: a name must follow the prefix", key=key)
            elif key in CLIENT_KEYS or key.startswith(CLIENT_PREFIXES):
                own["clients"][key] = _text(value)
            elif key.startswith("topic."):
                own["topics"][key.removeprefix("topic.")] = _text(value)
            elif key.startswith("client.tag."):
                own["client_tags"][key.removeprefix("client.tag.")] = _text(value)
            elif key.startswith("app."):
                own["app"][key.removeprefix("app.")] = value
            else:
                raise _unknown(key, known)
        if own.get(STATIC_TASKS) is not None:  # travels as a client tag
            if STATIC_TASKS in own["client_tags"]:
                raise ConfigError(f"both {STATIC_TASKS} and client.tag.{STATIC_TASKS} are set", key=STATIC_TASKS)
            items = own[STATIC_TASKS]
            if isinstance(items, str | list | tuple):
                own["client_tags"][STATIC_TASKS] = items if isinstance(items, str) else ",".join(map(str, items))
        if "commit.interval.ms" not in own and _is_embedded(own.get("bootstrap.servers")):
            own["commit.interval.ms"] = EMBEDDED_COMMIT_INTERVAL_MS
        elif "commit.interval.ms" not in own and own.get("processing.guarantee") == "exactly_once_v2":
            own["commit.interval.ms"] = _EXACTLY_ONCE_COMMIT_INTERVAL_MS
        try:
            return cls.model_validate(own)
        except ValidationError as error:
            raise _first_error(error, given) from None

    # -- validation of single keys -----------------------------------------

    @field_validator("application_id")
    @classmethod
    def _application_id(cls, value: str) -> str:
        if not value or len(value) > 249 or value in (".", "..") or not _NAME.fullmatch(value):
            raise ValueError(
                "it is part of the names of the group, internal topics and a folder: use 1 to 249 of the characters "
                "A-Z a-z 0-9 . _ -"
            )
        return value

    @field_validator("assignment_events_topic")
    @classmethod
    def _events_topic(cls, value: str) -> str:
        if value and (len(value) > 249 or value in (".", "..") or not _NAME.fullmatch(value)):
            raise ValueError("a topic name must have 1 to 249 of the characters A-Z a-z 0-9 . _ -")
        return value

    @field_validator("bootstrap_servers")
    @classmethod
    def _bootstrap(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(value) == 1 and _EMBEDDED.fullmatch(value[0]):
            return value
        for server in value:
            address = _ADDRESS.fullmatch(server)
            if address is None or not 0 < int(address["port"]) < 65_536:
                raise ValueError(
                    f"{server!r} is not a valid address: expected host:port with a port from 1 to 65535, or only "
                    "`embedded` (or `embedded://name`) for the built-in cluster"
                )
        if not value:
            raise ValueError("expected at least one host:port, or `embedded` for the built-in cluster")
        return value

    @field_validator("processing_guarantee", mode="before")
    @classmethod
    def _guarantee(cls, value: object) -> object:
        if value in ("exactly_once", "exactly_once_beta"):
            raise ValueError("Kafka Streams 4 no longer supports this guarantee; use exactly_once_v2")
        return value

    @field_validator("state_dir")
    @classmethod
    def _folder(cls, value: str) -> str:
        if not value.strip():
            raise ValueError("expected the path of a folder")
        return value

    @field_validator("replication_factor")
    @classmethod
    def _replicas(cls, value: int) -> int:
        if value == 0:
            raise ValueError("expected at least 1, or -1 for the broker's default")
        return value

    @field_validator("dsl_store_suppliers_class", mode="before")
    @classmethod
    def _store_kind(cls, value: object) -> object:
        text = str(value).lower().replace("-", "_")
        return {"rocks_db": "rocksdb", "persistent": "rocksdb", "memory": "in_memory"}.get(text, text)

    @field_validator("upgrade_from")
    @classmethod
    def _upgrade_from(cls, value: str | None) -> str | None:
        if value is not None and value not in _UPGRADE_FROM:
            raise ValueError("expected a release such as 2.3 or 3.8")
        return value

    @field_validator("application_server")
    @classmethod
    def _endpoint(cls, value: str) -> str:
        try:
            parse_endpoint(value)
        except ConfigError:
            raise ValueError(
                "expected host:port, for example localhost:8080, with a port from 0 to 2147483647"
            ) from None
        return value

    @field_validator("topology_optimization")
    @classmethod
    def _optimization(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        allowed = {"reuse.ktable.source.topics", "merge.repartition.topics", "single.store.self.join"}
        if value in (("none",), ("all",)):
            return value
        if not value or not set(value) <= allowed:
            raise ValueError(f"expected none, all, or a comma list of {', '.join(sorted(allowed))}")
        return value

    @field_validator("client_tags")
    @classmethod
    def _tags(cls, value: Mapping[str, str]) -> Mapping[str, str]:
        if len(value) > _TAGS_MAX:
            raise _CompleteMessageError(f"client.tag.*: at most {_TAGS_MAX} client tags are allowed, got {len(value)}")
        for key, text in value.items():
            if key == STATIC_TASKS:
                try:
                    value = {**value, key: TaskList.to_tag(text)}
                except ValueError as error:
                    raise _CompleteMessageError(str(error), key=key) from None
            elif len(key) > _TAG_KEY_CHARS_MAX or len(text) > _TAG_VALUE_CHARS_MAX:
                raise _CompleteMessageError(
                    f"client.tag.{key} = {text!r} is not valid: a tag key may have at most {_TAG_KEY_CHARS_MAX} "
                    f"characters, a value at most {_TAG_VALUE_CHARS_MAX}",
                    key=f"client.tag.{key}",
                )
        return value

    # -- validation of several keys together -------------------------------

    @model_validator(mode="after")
    def _together(self) -> StreamsConfig:
        if len(self.rack_aware_assignment_tags) > _TAGS_MAX:
            raise _CompleteMessageError(
                f"rack.aware.assignment.tags names more than {_TAGS_MAX} tags: "
                f"{', '.join(self.rack_aware_assignment_tags)}",
                key="rack.aware.assignment.tags",
            )
        if STATIC_TASKS in self.rack_aware_assignment_tags:
            raise _CompleteMessageError(
                f"rack.aware.assignment.tags names {STATIC_TASKS}, which does not describe a location",
                key="rack.aware.assignment.tags",
            )
        missing = [tag for tag in self.rack_aware_assignment_tags if tag not in self.client_tags]
        if missing:
            raise _CompleteMessageError(
                f"rack.aware.assignment.tags names {missing[0]!r}, but this instance has no "
                f"client.tag.{missing[0]}; set it",
                key="rack.aware.assignment.tags",
            )
        if self.exactly_once and self.commit_interval_ms >= self.transaction_timeout_ms:
            raise _CompleteMessageError(
                f"commit.interval.ms = {self.commit_interval_ms} must be below producer.transaction.timeout.ms = "
                f"{self.transaction_timeout_ms}, because the broker would abort every transaction before its commit; "
                "lower the former or raise the latter",
                key="commit.interval.ms",
            )
        return self

    # -- derived settings ----------------------------------------

    @property
    def exactly_once(self) -> bool:
        """Whether records are processed in transactions."""
        return self.processing_guarantee == "exactly_once_v2"

    @property
    def transaction_timeout_ms(self) -> int:
        """Time in ms after which the broker aborts a transaction without a commit."""
        return self.number_for(ClientRole.PRODUCER, "transaction.timeout.ms", _TRANSACTION_TIMEOUT_MS, most=INT32_MAX)

    @property
    def embedded(self) -> bool:
        """Whether the built-in cluster is used."""
        return self.bootstrap_servers[0].startswith("embedded")

    def settings_for(self, role: ClientRole, preset: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the settings for one kind of client, by their names without a prefix.

        Settings without a prefix come first. Each prefix of ``role`` overrides them.

        Args:
            role: The kind of client.
            preset: Settings that only the last prefix of ``role`` overrides.
        """
        settings = {key: value for key, value in self.clients.items() if not key.startswith(CLIENT_PREFIXES)}
        *shared, own = role.value
        for prefix in shared:
            settings |= self._with_prefix(prefix)
        return settings | dict(preset or {}) | self._with_prefix(own)

    def _with_prefix(self, prefix: str) -> dict[str, str]:
        return {key.removeprefix(prefix): value for key, value in self.clients.items() if key.startswith(prefix)}

    def setting_for(self, role: ClientRole, name: str) -> str | None:
        """Return one of :meth:`settings_for`; None if it is not set."""
        return self.settings_for(role).get(name)

    def number_for(self, role: ClientRole, name: str, default: int, *, least: int = 1, most: int | None = None) -> int:
        """Return a number among :meth:`settings_for`, or ``default`` if it is not set.

        Raises:
            ConfigError: The value is not a whole number from ``least`` to ``most``.
        """
        text = self.setting_for(role, name)
        if text is None:
            return default
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least or (most is not None and number > most):
            unit = " of milliseconds" if name.endswith(".ms") else ""
            limit = f"{least} or more" if most is None else f"{least} to {most}"
            raise ConfigError(f"{name} = {text!r} is not valid: expected a whole number{unit}, {limit}", key=name)
        return number

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for key, value in self.original.items():
            yield key, shown(key, value)


# The signature for help(). Pydantic's signature would list every field under a name that is never used.
StreamsConfig.__signature__ = Signature([Parameter("settings", Parameter.VAR_KEYWORD)])


def known_keys() -> frozenset[str]:
    """Return all supported dotted keys of Kafka Streams."""
    return frozenset(filter(None, (key_of(name, field) for name, field in StreamsConfig.model_fields.items())))


def _canonical(given: Mapping[str, Any], *, spelt_with_underscores: bool = False) -> dict[str, Any]:
    """Return ``given`` with the newest dotted names, without None values."""
    known = known_keys()
    loosely = {name.replace(".", "_"): name for name in known | CLIENT_KEYS}
    found: dict[str, Any] = {}
    renamed: dict[str, Any] = {}
    for key, value in given.items():
        if value is None:
            continue
        if spelt_with_underscores:
            dotted = key.replace("_", ".")
            key = loosely.get(key, dotted if dotted in RENAMED or dotted.startswith(PREFIXES) else key)
        if key in RENAMED:
            renamed[RENAMED[key]] = value
        else:
            found[key] = value
    return renamed | found


def _is_embedded(bootstrap: object) -> bool:
    servers = texts(bootstrap)
    return isinstance(servers, tuple) and any(str(server).startswith("embedded") for server in servers)


class _Function(str):
    """A function as a setting of type text. Its text is the name of the function, and calling it calls the function."""

    __slots__ = ("function",)

    function: Callable[..., object]

    @classmethod
    def of(cls, function: Callable[..., object]) -> _Function:
        made = cls(f"<{getattr(function, '__qualname__', type(function).__name__)}>")
        made.function = function
        return made

    def __call__(self, *arguments: object) -> object:
        return self.function(*arguments)


def _text(value: object) -> str:
    if callable(value):
        return _Function.of(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _unknown(key: str, known: frozenset[str]) -> ConfigError:
    instead = INSTEAD.get(key.replace("_", "."))
    if instead is not None:
        return ConfigError(
            f"configuration key {key!r} of Kafka Streams for Java does not exist here: {instead}", key=key
        )
    candidates = sorted(known | CLIENT_KEYS)
    near = difflib.get_close_matches(key.replace("_", "."), candidates, n=1, cutoff=0.5)
    if key.replace("_", ".") == "group.id":  # the name of this setting in other clients
        near = ["application.id"]
    hint = f"did you mean {near[0]!r}? " if near else ""
    return ConfigError(
        f"unknown configuration key {key!r}: {hint}Settings for one Kafka client require its prefix "
        f"({', '.join(CLIENT_PREFIXES)}); settings of the application start with 'app.'",
        key=key,
    )


def _first_error(error: ValidationError, given: Mapping[str, Any]) -> ConfigError:
    first = error.errors(include_url=False)[0]
    context = first.get("ctx", {})
    found = context.get("error")
    if isinstance(found, _CompleteMessageError | ConfigError):
        return ConfigError(str(found), key=found.key)
    key = next(_alias(part) for part in first["loc"] if isinstance(part, str))
    if first["type"] == "missing":
        return ConfigError(f"{key} is required; set it, for example {key} = {_EXAMPLES.get(key, '...')}", key=key)
    return ConfigError(
        f"{key} = {masked(key, given.get(key))} is not valid: {_allowed(first['type'], context)}", key=key
    )


def _alias(part: str) -> str:
    field = StreamsConfig.model_fields.get(part)
    return part if field is None else field.alias or dotted(part)


def _allowed(kind: str, context: Mapping[str, Any]) -> str:
    """Describe the valid values."""
    match kind:
        case "value_error":
            return str(context["error"])
        case "literal_error":
            return f"expected {context['expected']}"
        case "greater_than_equal":
            return f"expected a number of at least {context['ge']}"
        case "less_than_equal":
            return f"expected a number of at most {context['le']}"
        case "bool_parsing" | "bool_type":
            return "expected true or false"
        case "string_type":
            return "expected text, in quotes"
        case "tuple_type":
            return "expected a list, or text separated by commas"
        case _ if kind.startswith("int"):
            return "expected a whole number"
    return f"expected another kind of value ({kind})"


_EXAMPLES: Final = {
    "application.id": "'word-count'",
    "bootstrap.servers": "'localhost:9092', or 'embedded' for a built-in cluster on this machine",
}
