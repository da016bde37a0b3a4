"""The settings of a worker, with Kafka Connect's names."""

from __future__ import annotations

import logging
import re
import socket
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from streams_protocol.connect import TaskId
from streams_py.adapters.security.settings import is_security_key
from streams_py.config.keys import masked
from streams_py.connect.assignment.lists import parse_static_connectors, parse_static_tasks
from streams_py.connect.assignment.modes import Mode
from streams_py.connect.policy.classes import Plugins
from streams_py.connect.policy.limits import AllowedPaths, OverridePolicy, PolicyName
from streams_py.connect.policy.providers import ConfigProviders
from streams_py.connect.policy.worker_policy import WorkerPolicy
from streams_py.connect.rest.listeners import Listeners, socket_mode
from streams_py.connect.rest.protection import CLIENT_AUTH as _CLIENT_AUTH
from streams_py.connect.rest.protection import HTTPS, RestProtection, refuse_without_https
from streams_py.errors import ConfigError

_log = logging.getLogger("streams_py.connect")

_INT_MAX = 2**31 - 1
_CLIENT_PREFIXES = ("producer.", "consumer.", "admin.")


_PROVIDERS = "config.providers"
_NOT_HERE = {
    "rest.extension.classes": "REST extensions are not supported",
    "admin.listeners": "a second set of listeners is not supported",
    "exactly.once.source.support": "source connectors deliver at least once here",
    "connector.client.config.override.policy.class": "use connector.client.config.override.policy",
}
"""Settings of Kafka Connect for features that a worker does not have here."""
_ADMIN_LISTENERS = "admin.listeners"
"""Listeners of the REST interface.

Other keys with the prefix ``admin.`` are settings of admin clients.
"""
_PROTECTS = re.compile(
    r"(?:^|[._-])(?:auth\w*|ssl|sasl|security|acls?|password|secret|token|certificate|encrypt\w*)(?:[._-]|$)"
)
_ASKS_FOR_NOTHING = ("", "none", "disabled", "false")


def _refuse_protection(key: str, value: object) -> None:
    """Raise ConfigError for an unknown setting that requires a protection or guarantee.

    A missing protection would not be noticed.
    """
    if str(value).strip().lower() in _ASKS_FOR_NOTHING:
        return
    why = _NOT_HERE.get(key)
    if why is None and _PROTECTS.search(key):
        why = "this worker does not have this protection"
    if why is not None:
        raise ConfigError(f"{key} is not a setting of a worker here: {why}; remove it", key=key)


def _resolved(given: Mapping[str, Any], providers: ConfigProviders) -> dict[str, Any]:
    texts = {key: value for key, value in given.items() if isinstance(value, str) and not key.startswith(_PROVIDERS)}
    return {**given, **providers.resolve(texts)}


def _names(value: object) -> object:
    return tuple(name.strip() for name in value.split(",") if name.strip()) if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
"""Names from comma-separated text."""


class WorkerSettings(BaseModel):
    """The settings. Created from dotted keys with :meth:`of`. Times are in milliseconds."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", arbitrary_types_allowed=True, alias_generator=lambda name: name.replace("_", ".")
    )

    bootstrap_servers: str = "localhost:9092"
    group_id: str = Field(min_length=1)
    connect_protocol: Mode = Mode.STATIC
    static_connectors: frozenset[str] | None = None
    static_tasks: frozenset[TaskId] | None = None
    scheduled_rebalance_max_delay_ms: int = Field(300_000, ge=0, le=_INT_MAX)
    session_timeout_ms: int = Field(10_000, ge=1)
    heartbeat_interval_ms: int = Field(3_000, ge=1)
    rebalance_timeout_ms: int = Field(60_000, ge=1)
    worker_sync_timeout_ms: int = Field(3_000, ge=1)
    worker_unsync_backoff_ms: int = Field(300_000, ge=0)
    config_storage_topic: str = Field(min_length=1)
    config_storage_replication_factor: int = Field(3, ge=-1)
    offset_storage_topic: str = Field(min_length=1)
    offset_storage_partitions: int = Field(25, ge=1)
    offset_storage_replication_factor: int = Field(3, ge=-1)
    status_storage_topic: str = Field(min_length=1)
    status_storage_partitions: int = Field(5, ge=1)
    status_storage_replication_factor: int = Field(3, ge=-1)
    key_converter: str = Field(min_length=1)
    value_converter: str = Field(min_length=1)
    offset_flush_interval_ms: int = Field(60_000, ge=1)
    offset_flush_timeout_ms: int = Field(5_000, ge=1)
    task_shutdown_graceful_timeout_ms: int = Field(5_000, ge=0)
    listeners: str = "http://127.0.0.1:8083"
    rest_advertised_listener: Literal["http", "https"] | None = None
    rest_unix_socket_mode: str = "0600"
    rest_basic_auth_credentials_file: str | None = None
    """File with the users of the REST interface, one line ``user = password`` each.

    Its mode must be 0600.
    """
    rest_advertised_host_name: str | None = None
    rest_advertised_port: int | None = Field(None, ge=1, le=65_535)
    rest_accepted_names: Names = ()
    """Additional host names under which the REST interface may be requested. ``*`` allows any.

    To workers with these names, credentials are sent also without TLS; ``*`` does not count for this.
    """
    client_id: str = ""
    inter_worker_key_ttl_ms: int = Field(3_600_000, ge=0, le=_INT_MAX)
    inter_worker_key_generation_algorithm: Literal["HmacSHA256"] = "HmacSHA256"
    inter_worker_signature_algorithm: Literal["HmacSHA256"] = "HmacSHA256"
    inter_worker_verification_algorithms: Literal["HmacSHA256"] = "HmacSHA256"
    retry_backoff_ms: int = Field(100, ge=0)
    plugin_modules: Names = ()
    """Modules and packages whose classes may be connectors, in addition to installed plug-ins."""
    file_connectors_allowed_paths: Names = ()
    """Folders of this host in which file connectors may read and write."""
    connector_client_config_override_policy: PolicyName = "None"
    connector_client_config_override_allowlist: Names = ()
    config_providers: Mapping[str, str] = Field(default_factory=dict)
    """``config.providers`` and ``config.providers.*``, as given."""
    clients: Mapping[str, str] = Field(default_factory=dict, repr=False)
    """``producer.*``, ``consumer.*``, ``admin.*`` and security keys, as given."""
    listener_security: Mapping[str, str] = Field(default_factory=dict, repr=False)
    """``listeners.https.*`` and ``ssl.client.auth``, as given."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> WorkerSettings:
        """Create from dotted keys.

        Logs a warning for unknown keys. ConfigError names the key and its value.
        """
        known = {name.replace("_", ".") for name in cls.model_fields} - {"clients", "listener.security", _PROVIDERS}
        providers = {key: str(value) for key, value in given.items() if key.partition(f"{_PROVIDERS}.")[0] == ""}
        providers |= {_PROVIDERS: str(given[_PROVIDERS])} if _PROVIDERS in given else {}
        given = _resolved(given, ConfigProviders.of(providers))
        clients = {
            key: str(value)
            for key, value in given.items()
            if key not in known
            and (key.startswith(_CLIENT_PREFIXES) or is_security_key(key))
            and not key.startswith(_ADMIN_LISTENERS)
            and key != _CLIENT_AUTH
        }
        listener = {key: str(value) for key, value in given.items() if key.startswith(HTTPS) or key == _CLIENT_AUTH}
        for key in sorted(given.keys() - known - clients.keys() - providers.keys() - listener.keys()):
            _refuse_protection(key, given[key])
            _log.warning("%s is not a setting of a worker here; ignoring it", key)
        kept = {key: given[key] for key in given.keys() & known}
        try:
            settings = cls.model_validate(
                {**kept, "clients": clients, "listener.security": listener, _PROVIDERS: providers}
            )
            refuse_without_https(settings.listener.scheme, listener)
            return settings
        except ValidationError as error:
            first = error.errors()[0]
            key = str(first["loc"][0]) if first["loc"] else ""
            if first["type"] == "missing":
                raise ConfigError(f"{key} is required", key=key) from None
            value = f" = {masked(key, given[key])}" if key in given else ""
            raise ConfigError(f"{key}{value} is not valid: {first['msg']}".lstrip(), key=key or None) from None

    @field_validator("connect_protocol", mode="before")
    @classmethod
    def _mode(cls, value: object) -> object:
        return Mode.of_setting(value) if isinstance(value, str) else value

    @field_validator("static_connectors", mode="before")
    @classmethod
    def _connectors(cls, value: Any) -> object:
        return parse_static_connectors(value)

    @field_validator("static_tasks", mode="before")
    @classmethod
    def _tasks(cls, value: Any) -> object:
        return parse_static_tasks(value)

    @field_validator("listeners")
    @classmethod
    def _listener(cls, value: str) -> str:
        Listeners.parse(value)
        return value

    @field_validator("rest_unix_socket_mode")
    @classmethod
    def _mode_of_socket(cls, value: str) -> str:
        socket_mode(value)
        return value

    @model_validator(mode="after")
    def _fits_together(self) -> WorkerSettings:
        topics = {self.config_storage_topic, self.offset_storage_topic, self.status_storage_topic}
        if len(topics) < 3:
            raise ValueError(
                "config.storage.topic, offset.storage.topic and status.storage.topic must be three different topics"
            )
        if self.rest_advertised_listener not in (None, self.listener.scheme):
            raise ValueError(
                f"rest.advertised.listener = {self.rest_advertised_listener} is not among listeners = {self.listeners}"
            )
        if self.heartbeat_interval_ms * 3 > self.session_timeout_ms:
            raise ValueError(
                f"heartbeat.interval.ms = {self.heartbeat_interval_ms} must be at most a third of session.timeout.ms = "
                f"{self.session_timeout_ms}"
            )
        return self

    @cached_property
    def policy(self) -> WorkerPolicy:
        """The limits for configurations of connectors on this worker."""
        return WorkerPolicy(
            Plugins(self.plugin_modules, AllowedPaths(self.file_connectors_allowed_paths)),
            OverridePolicy(
                self.connector_client_config_override_policy, self.connector_client_config_override_allowlist
            ),
            ConfigProviders.of(self.config_providers),
        )

    @property
    def listener(self) -> Listeners:
        """The addresses to listen on."""
        return Listeners.parse(self.listeners)

    @property
    def worker_id(self) -> str:
        """``host:port`` under which other workers reach this worker."""
        host, port = self.listener.address or (socket.gethostname(), 0)
        host = self.rest_advertised_host_name or ("localhost" if host in ("0.0.0.0", "::") else host)
        port = self.rest_advertised_port or port
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def url(self) -> str:
        """The advertised REST URL."""
        return f"{self.listener.scheme}://{self.worker_id}/"

    def rest_protection(self) -> RestProtection:
        """Return TLS and credentials of the REST interface. Reads files. Raises ConfigError."""
        listener = self.listener
        shared = {key: value for key, value in self.clients.items() if key.startswith("ssl.")}
        read = RestProtection.of(listener.scheme, self.listener_security, shared, self.rest_basic_auth_credentials_file)
        return replace(read, trusted_hosts=frozenset(name.lower() for name in self.rest_accepted_names))

    @property
    def client(self) -> str:
        """``client.id``, or its default."""
        return self.client_id or f"connect-{self.worker_id}"

    def client_settings(self, prefix: str) -> dict[str, str]:
        """Return the settings of one kind of client (``producer.``), with the security keys."""
        shared = {key: value for key, value in self.clients.items() if not key.startswith(_CLIENT_PREFIXES)}
        own = {key[len(prefix) :]: value for key, value in self.clients.items() if key.startswith(prefix)}
        return {"bootstrap.servers": self.bootstrap_servers, **shared, **own}
