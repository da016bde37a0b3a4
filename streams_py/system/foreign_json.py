"""Parse untrusted JSON text: files, records of internal topics, requests and responses.

For such texts the standard library raises several kinds of errors (for deep nesting, numbers with thousands of digits,
and bytes that are not UTF-8). It also accepts NaN and Infinity, which fail later where an integer is expected.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import Any, NoReturn


def loads(text: str | bytes) -> Any:
    """Parse JSON text.

    Raises:
        ValueError: The input is not valid JSON. The message has the position, but no part of the input.
    """
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON ({error.msg.lower()} at position {error.pos})") from None
    except RecursionError:
        raise ValueError("it is not JSON (nested too deeply)") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not JSON (not UTF-8 at position {error.start})") from None
    except ValueError:
        raise ValueError("it is not JSON (a number that is too large, NaN or Infinity)") from None


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(text)
    return number
