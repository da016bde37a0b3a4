"""Configurations of connectors for display: placeholders stay, secrets are hidden.

A program may read a configuration, change it and write it back. A hidden value would then replace the secret, so a
configuration with a hidden value is refused.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Final

from streams_py.config.keys import is_secret
from streams_py.config.secrets import has_secret
from streams_py.connect.policy.providers import has_placeholder, is_placeholder, values_of_placeholders

HIDDEN: Final = "[hidden]"

_CHARS_MIN: Final = 4
"""Minimum length of a secret to search for, in characters.

A shorter text would be found everywhere.
"""


def shown_config(config: Mapping[str, str], secret_keys: Collection[str] = ()) -> dict[str, str]:
    """Return a configuration without secrets.

    ``secret_keys`` are the keys that the connector's class declares.
    """
    return {key: _shown(key, value, key in secret_keys) for key, value in config.items()}


def _shown(key: str, value: str, declared: bool) -> str:
    if is_placeholder(value):
        return value
    return HIDDEN if value and (declared or is_secret(key) or has_secret(value)) else value


def hidden_keys(config: Mapping[str, str | None]) -> list[str]:
    """Return the keys whose value is or contains the text for hidden values."""
    return sorted(key for key, value in config.items() if value is not None and HIDDEN in value)


def scrubbed(
    text: str, given: Mapping[str, str], resolved: Mapping[str, str], secret_keys: Collection[str] = ()
) -> str:
    """Return a text, such as a traceback, without the secrets of a configuration.

    ``secret_keys`` are the keys that the connector's class declares.
    """
    secrets: set[str] = set()
    for key, value in resolved.items():
        if key in secret_keys or is_secret(key) or has_placeholder(given.get(key, "")):
            secrets |= {value, *values_of_placeholders(given.get(key, ""), value)}
    secrets = {secret for secret in secrets if len(secret) >= _CHARS_MIN}
    # Errors quote values with repr(), which escapes quotes, backslashes and line breaks.
    secrets |= {repr(secret)[1:-1] for secret in secrets} | {json.dumps(secret)[1:-1] for secret in secrets}
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text
