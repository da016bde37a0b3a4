"""Management of a broker's SCRAM-SHA-512 users."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import confluent_kafka.admin

MECHANISM: Final = "SCRAM-SHA-512"

_admin: Any = confluent_kafka.admin  # it exports more names than its type information lists
_REQUEST_S: Final = 20.0
_LOGIN_S: Final = 60.0
_ROUNDS: Final = 4096  # the minimum that a broker accepts


def add_user(admin: Any, name: str, password: str) -> None:
    """Add a user, or change the password of an existing one."""
    credential = _admin.ScramCredentialInfo(_admin.ScramMechanism.SCRAM_SHA_512, _ROUNDS)
    _alter(admin, _admin.UserScramCredentialUpsertion(name, credential, password.encode()))


def await_login(settings: Mapping[str, str]) -> None:
    """Wait until a client with these settings can log in: a broker applies a new password only after its answer.

    Raises:
        KafkaException: The broker still refuses the login after a minute.
    """
    _admin.AdminClient({**settings, "log_level": 0}).list_topics(timeout=_LOGIN_S)  # librdkafka repeats the login


def forget_user(admin: Any, name: str) -> None:
    """Remove a user. Open connections of the user are not closed."""
    _alter(admin, _admin.UserScramCredentialDeletion(name, _admin.ScramMechanism.SCRAM_SHA_512))


def password_settings(protocol: str, mechanism: str, name: str, password: str) -> Mapping[str, str]:
    """Return the client settings for a login with a password."""
    return {
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
        "sasl.username": name,
        "sasl.password": password,
    }


def _alter(admin: Any, alteration: Any) -> None:
    for future in admin.alter_user_scram_credentials([alteration], request_timeout=_REQUEST_S).values():
        future.result()
