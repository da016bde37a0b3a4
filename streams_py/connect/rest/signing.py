"""Signatures of requests between workers (KIP-507).

A signature is HMAC-SHA256 over the body, with the group's session key.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping
from typing import ClassVar, Final

from streams_py.connect.errors import BadRequestError, ConnectError

ALGORITHM: Final = "HmacSHA256"
SIGNATURE_HEADER: Final = "X-Connect-Authorization"
ALGORITHM_HEADER: Final = "X-Connect-Request-Signature-Algorithm"


class KeyUnknownError(ConnectError):
    """This worker has not read the session key yet. Try again in a moment."""

    status: ClassVar[int] = 503


class SignatureError(ConnectError):
    """The request was signed with another key. Retriable, because keys are rotated."""

    status: ClassVar[int] = 403
    retriable = True


def sign(key: str, body: bytes) -> dict[str, str]:
    """Return the signature headers for a request with this body. ``key`` is base64."""
    return {SIGNATURE_HEADER: base64.b64encode(_mac(key, body)).decode(), ALGORITHM_HEADER: ALGORITHM}


def verify(key: str | None, headers: Mapping[str, str], body: bytes) -> None:
    """Verify a signature.

    Raises:
        BadRequestError: The request has no usable signature.
        KeyUnknownError: This worker does not know the session key yet.
        SignatureError: The signature does not match the session key.
    """
    signature, algorithm = headers.get(SIGNATURE_HEADER), headers.get(ALGORITHM_HEADER)
    if signature is None or algorithm is None:
        raise BadRequestError(
            f"this request is for workers only, and must be signed: {SIGNATURE_HEADER}, {ALGORITHM_HEADER}"
        )
    if algorithm != ALGORITHM:
        raise BadRequestError(f"{ALGORITHM_HEADER} must be {ALGORITHM}")
    try:
        given = base64.b64decode(signature, validate=True)
    except (binascii.Error, ValueError):
        raise BadRequestError(f"{SIGNATURE_HEADER} is not base64") from None
    if key is None:
        raise KeyUnknownError("this worker does not know the session key yet; try again in a moment")
    if not hmac.compare_digest(given, _mac(key, body)):
        raise SignatureError("the signature does not match this worker's session key")


def _mac(key: str, body: bytes) -> bytes:
    return hmac.new(base64.b64decode(key), body, hashlib.sha256).digest()
