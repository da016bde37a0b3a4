"""Takes secrets out of texts before they leave the process: of errors, and of settings whose name promises no secret.

They come in through a client library that quotes a setting, a URL with credentials, a login module's line. Better one
word too many hidden than one too few.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["ERROR_TEXT_CHARS_MAX", "redact"]

ERROR_TEXT_CHARS_MAX: Final = 512

_CHARS_READ: Final = 8 * ERROR_TEXT_CHARS_MAX
_HIDDEN: Final = "***"
_URL: Final = re.compile(r"(?<=://)[^\s/@'\"]+@")
_JAAS: Final = re.compile(r"(jaas[\w.-]*\s*['\"]?\s*[=:]?\s*).*", re.IGNORECASE | re.DOTALL)
_BEARER: Final = re.compile(r"(\bbearer\s+)\S+", re.IGNORECASE)
# A quoted value ends at its quote, an unquoted one at white space or punctuation that separates settings.
_VALUE: Final = re.compile(
    r"((?:password|passwd|secret|token|credentials?)[\w.-]*['\"]?\s*[=:]\s*)"
    r"(?:\"(?:[^\"\\]|\\.)*\"?|'(?:[^'\\]|\\.)*'?|[^\s,;&)\]}]+)",
    re.IGNORECASE,
)


def redact(text: str) -> str:
    """``text`` without secrets, at most 512 characters.

    Hidden are values after ``password=``, ``secret=``, ``token=`` and their like (also as part of a longer name, also
    with a colon), everything after ``jaas``, what follows ``Bearer``, and ``user:password@`` in URLs.
    """
    if len(text) > _CHARS_READ:  # a megabyte of text must not cost a megabyte of matching
        text = re.sub(r"\S*\Z", "", text[:_CHARS_READ])  # half of a URL would not be known for one
    text = _URL.sub(f"{_HIDDEN}@", text)
    text = _JAAS.sub(rf"\1{_HIDDEN}", text)
    text = _BEARER.sub(rf"\1{_HIDDEN}", text)
    text = _VALUE.sub(rf"\1{_HIDDEN}", text)
    return text[:ERROR_TEXT_CHARS_MAX]
