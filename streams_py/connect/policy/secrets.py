"""Configurations of connectors as they may be shown: placeholders stay, secrets are hidden.

A hidden value that comes back, because a program read a configuration and wrote it again, would replace the secret. So
a configuration with a hidden value is refused.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Final

from streams_py.config.keys import is_secret
from streams_py.config.secrets import has_secret
from streams_py.connect.policy.providers import has_placeholder, is_placeholder, values_of_placeholders

__all__ = ["HIDDEN", "hidden_keys", "scrubbed", "shown_config"]

HIDDEN: Final = "[hidden]"

_CHARS_MIN: Final = 4
"""A secret shorter than this is not searched for: it would be found everywhere."""


def shown_config(config: Mapping[str, str], secret_keys: Collection[str] = ()) -> dict[str, str]:
    """A configuration for everybody's eyes. ``secret_keys``: what the connector's class declares as secret."""
    return {key: _shown(key, value, key in secret_keys) for key, value in config.items()}


def _shown(key: str, value: str, declared: bool) -> str:
    if is_placeholder(value):
        return value
    return HIDDEN if value and (declared or is_secret(key) or has_secret(value)) else value


def hidden_keys(config: Mapping[str, str | None]) -> list[str]:
    """The keys whose value is, or has in it, what stands for a hidden one."""
    return sorted(key for key, value in config.items() if value is not None and HIDDEN in value)


def scrubbed(
    text: str, given: Mapping[str, str], resolved: Mapping[str, str], secret_keys: Collection[str] = ()
) -> str:
    """A text, such as a traceback, without the secrets of a configuration. ``secret_keys``: as for a shown one."""
    secrets: set[str] = set()
    for key, value in resolved.items():
        if key in secret_keys or is_secret(key) or has_placeholder(given.get(key, "")):
            secrets |= {value, *values_of_placeholders(given.get(key, ""), value)}
    secrets = {secret for secret in secrets if len(secret) >= _CHARS_MIN}
    # Errors quote values with repr(), which writes quotes, backslashes and line breaks in another way.
    secrets |= {repr(secret)[1:-1] for secret in secrets} | {json.dumps(secret)[1:-1] for secret in secrets}
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text
