"""Users of a broker who log in with a password (SCRAM-SHA-512)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import confluent_kafka.admin

__all__ = ["MECHANISM", "add_user", "forget_user", "password_keys"]

MECHANISM: Final = "SCRAM-SHA-512"

_admin: Any = confluent_kafka.admin  # it exports more than its type information says
_REQUEST_S: Final = 20.0
_ROUNDS: Final = 4096  # the fewest that a broker accepts


def add_user(admin: Any, name: str, password: str) -> None:
    """Let a user log in, from now on with this password."""
    credential = _admin.ScramCredentialInfo(_admin.ScramMechanism.SCRAM_SHA_512, _ROUNDS)
    _alter(admin, _admin.UserScramCredentialUpsertion(name, credential, password.encode()))


def forget_user(admin: Any, name: str) -> None:
    """Let a user log in no more. Who is logged in stays so until the connection ends."""
    _alter(admin, _admin.UserScramCredentialDeletion(name, _admin.ScramMechanism.SCRAM_SHA_512))


def password_keys(protocol: str, mechanism: str, name: str, password: str) -> Mapping[str, str]:
    """Kafka's keys of a client that logs in."""
    return {
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
        "sasl.username": name,
        "sasl.password": password,
    }


def _alter(admin: Any, alteration: Any) -> None:
    for future in admin.alter_user_scram_credentials([alteration], request_timeout=_REQUEST_S).values():
        future.result()
