"""JSON text that others wrote: files, records of internal topics, requests, answers.

The standard library raises several errors for such texts (nesting that is too deep, numbers of thousands of digits,
bytes that are no text), and accepts NaN and Infinity, which later fail where an integer is expected.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import Any, NoReturn

__all__ = ["loads"]


def loads(text: str | bytes) -> Any:
    """The value of a JSON text. ValueError for any other input; its text has the position and no part of the input."""
    try:
        return json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON ({error.msg.lower()} at position {error.pos})") from None
    except RecursionError:
        raise ValueError("it is not JSON (nested too deeply)") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not JSON (no text at position {error.start})") from None
    except ValueError:
        raise ValueError("it is not JSON (a number that is too large, NaN or Infinity)") from None


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(text)
    return number
