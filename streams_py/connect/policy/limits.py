"""What a connector's configuration may not contain: settings of clients, and paths of the worker's host.

Settings of Kafka clients that a connector may override (KIP-458): the policy is the setting
``connector.client.config.override.policy``. Kafka's default is ``All``, ours is ``None``. librdkafka loads native code
that a setting names, and a connector with its own bootstrap address or login could use the worker to reach other
clusters. Therefore ``All`` does not include those keys here. The policy ``Principal``, which consists of them, does not
exist.

Paths that connectors may use are below ``file.connectors.allowed.paths``.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias

from streams_py.adapters.security.settings import is_security_key

PolicyName: TypeAlias = Literal["None", "All", "Allowlist"]

_PREFIXES: Final = ("producer.override.", "consumer.override.", "admin.override.")
_NEVER: Final = ("bootstrap.servers", "metadata.broker.list", "client.id")
_NEVER_PARTS: Final = ("plugin.", "library", ".location", ".path", ".class", "interceptor", "callback", "certificate")


class OverridePolicy:
    """The policy. ``allowed`` are the keys of ``Allowlist``, without a prefix."""

    def __init__(self, name: PolicyName, allowed: Collection[str] = ()) -> None:
        self._name = name
        self._allowed = frozenset(allowed)

    def problems(self, config: Mapping[str, str]) -> list[str]:
        """Return a sentence for each forbidden override in a connector's configuration."""
        found = []
        for key in sorted(config):
            prefix = next((one for one in _PREFIXES if key.startswith(one)), None)
            if prefix is None:
                continue
            setting = key.removeprefix(prefix)
            if _is_never_allowed(setting):
                found.append(f"{key}: a connector cannot override {setting}; it is a setting of the worker")
            elif self._name == "None":
                found.append(
                    f"{key}: connector.client.config.override.policy = None allows no overrides; set it to All, or to "
                    "Allowlist, on all workers"
                )
            elif self._name == "Allowlist" and setting not in self._allowed:
                found.append(f"{key}: {setting} is not in connector.client.config.override.allowlist of the worker")
        return found


def _is_never_allowed(setting: str) -> bool:
    name = setting.lower()
    return (
        is_security_key(name)
        or name.startswith("enable.ssl")
        or name in _NEVER
        or any(part in name for part in _NEVER_PARTS)
    )


class AllowedPaths:
    """Allows files and folders below these folders. Resolves links before the comparison."""

    def __init__(self, folders: Sequence[str] = ()) -> None:
        self._folders = folders

    def problems(self, keys: Sequence[str], config: Mapping[str, str]) -> list[str]:
        """Return a sentence for each of these keys whose path is not allowed."""
        return [
            f"{key} = {config[key]!r} is not below a folder of file.connectors.allowed.paths "
            f"({', '.join(self._folders) or 'which is empty'}); set it on the workers"
            for key in keys
            if key in config and not self._has(config[key])
        ]

    def _has(self, path: str) -> bool:
        try:
            real = Path(os.path.realpath(path))
        except ValueError:  # a NUL character
            return False
        return any(real.is_relative_to(os.path.realpath(folder)) for folder in self._folders)
