"""What the fields of an event say of each other: lists that run along another one are as long, and counts are bounded.

Each field is checked for itself when it is read. But whoever works with an event goes through several of its lists at
once, and makes as many tasks as it says there are. Whether that fits is checked once, before anybody does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from streams_py.events.fields import refused
from streams_py.events.model import Body, ClientPart, Sample, SubtopologySlice, TasksPart
from streams_py.events.taskset import TASKS_MAX

__all__ = ["check_body", "check_slice"]

_SUB: Final = re.compile(r"(?:.*__)?[0-9]{1,9}", re.ASCII | re.DOTALL)
_ALONG_TASKS: Final = ("input_lag", "records", "busy_us", "commit_age_ms")


def check_body(body: Body) -> None:
    """DecodeError when fields contradict each other."""
    match body:
        case Sample():
            for name in _ALONG_TASKS:
                _check_length(f"sample.{name}", getattr(body, name), len(body.tasks))
        case TasksPart():
            for piece in body.subs:
                check_slice(piece)
        case ClientPart():
            _check_length("client.sums.v", body.sums.v, len(body.sums.tasks))


def check_slice(piece: SubtopologySlice) -> None:
    """DecodeError when a slice is not of so many partitions, or of more than there can be."""
    if _SUB.fullmatch(piece.sub) is None:
        raise refused("subs.sub", piece.sub, "the number of a sub-topology")
    if not (piece.first >= 0 and piece.count >= 0 and piece.first + piece.count <= TASKS_MAX):
        raise refused("subs.count", piece.count, f"partitions 0 to {TASKS_MAX} at most")
    for name, given in (("end", piece.end), ("weight", piece.weight)):
        if given is not None:
            _check_length(f"subs.{name}", given, piece.count)
    if piece.racks is not None:
        for topic, racks in piece.racks.p.items():
            _check_length(f"subs.racks.{topic}", racks, piece.count)
            if any(not 0 <= place < len(piece.racks.names) for of in racks for place in of):
                raise refused(f"subs.racks.{topic}", racks, "positions in the names of the racks")


def _check_length(where: str, given: Sequence[Any], wanted: int) -> None:
    if len(given) != wanted:
        raise refused(where, given, f"{wanted} values, as many as what they belong to")
