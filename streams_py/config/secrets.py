"""Remove secrets from texts before they leave the process: error messages, and settings whose names look harmless.

Secrets get into such texts when a client library quotes a setting, in URLs with credentials, or in the line of a login
module. It is better to hide one word too many than one too few.
"""

from __future__ import annotations

import re
from typing import Final

ERROR_TEXT_CHARS_MAX: Final = 512

_CHARS_READ: Final = 8 * ERROR_TEXT_CHARS_MAX
_HIDDEN: Final = "***"
# Up to the last @ before white space, a quote or the next address: passwords may have @ and / in them.
_URL: Final = re.compile(r"(?<=://)(?:(?!://)[^\s'\"<>])+@")
# A password with blanks, where the part in front of the @ has the form user:password.
_URL_BLANKS: Final = re.compile(r"(?<=://)[^\s/@:'\"<>]+:(?:(?!://)[^'\"<>\n]){1,200}@(?=[\w.\[-]+[:/]?)")
_PEM: Final = re.compile(r"-----BEGIN [A-Z0-9 ]+-----.*?(?:-----END [A-Z0-9 ]+-----|\Z)", re.DOTALL)
_JAAS: Final = re.compile(r"(jaas[\w.-]*\s*['\"]?\s*[=:]?\s*).*", re.IGNORECASE | re.DOTALL)
_SCHEME: Final = re.compile(r"(\b(?:bearer|basic|digest|negotiate)(?:\s+|%20))[^\s,;'\"]{4,}", re.IGNORECASE)
_AUTHORIZATION: Final = re.compile(
    r"((?:proxy-)?authorization['\"]?\s*[:=]\s*['\"]?)(?:\w+\s+)?[^\s,;'\"]+", re.IGNORECASE
)
_SECRET_NAMES: Final = (
    r"pass(?:word|wd|phrase)?|pwd|secret|token|credentials?|api[._-]?key|access[._-]?key|account[._-]?key"
    r"|private[._-]?key|user[._-]?info"
)
_SHORT_NAMES: Final = r"signature|\b(?:sas|sig|auth|cookie)"
# A quoted value ends at its quote, an unquoted one at white space or punctuation that separates settings.
_VALUE: Final = re.compile(
    rf"((?:(?:{_SECRET_NAMES})(?:[._-][\w.-]*)?|{_SHORT_NAMES})['\"]?\s*[=:]\s*)"
    r"(?:\"(?:[^\"\\]|\\.)*\"?|'(?:[^'\\]|\\.)*'?|[^\s,;&)\]}]+)",
    re.IGNORECASE,
)


def redact(text: str) -> str:
    """Return ``text`` without secrets, at most 512 characters.

    Hidden are values after ``password=``, ``secret=``, ``token=``, ``sig=`` and their like (also as part of a longer
    name, also with a colon), everything after ``jaas``, what follows ``Bearer`` and ``Basic``, PEM blocks, and
    ``user:password@`` in URLs.
    """
    if len(text) > _CHARS_READ:  # a megabyte of text must not cost a megabyte of matching
        text = re.sub(r"\S*\Z", "", text[:_CHARS_READ])  # half of a URL would not be known for one
    return _hidden(text)[:ERROR_TEXT_CHARS_MAX]


def has_secret(text: str) -> bool:
    """Whether :func:`redact` would hide something, at any place of a text of any length."""
    # Patterns may take quadratic time, so the text is searched in overlapping pieces.
    pieces = (text[at : at + _CHARS_READ] for at in range(0, max(len(text), 1), _CHARS_READ // 2))
    return any(_hidden(piece) != piece for piece in pieces)


def _hidden(text: str) -> str:
    text = _PEM.sub(_HIDDEN, text)
    text = _URL.sub(f"{_HIDDEN}@", text)
    text = _URL_BLANKS.sub(f"{_HIDDEN}@", text)
    text = _JAAS.sub(rf"\1{_HIDDEN}", text)
    text = _AUTHORIZATION.sub(rf"\1{_HIDDEN}", text)
    text = _SCHEME.sub(rf"\1{_HIDDEN}", text)
    return _VALUE.sub(rf"\1{_HIDDEN}", text)
