"""Check the fields of an event against each other: parallel lists must have equal lengths, and counts are limited.

Each field is checked separately when it is read. But code that processes an event iterates over several lists in
parallel, and creates as many tasks as the event declares. So the consistency is checked once, before any such code
runs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from streams_py.events.fields import refused
from streams_py.events.model import Body, ClientPart, Sample, SubtopologySlice, TasksPart
from streams_py.events.taskset import TASKS_MAX

_SUB: Final = re.compile(r"(?:.*__)?[0-9]{1,9}", re.ASCII | re.DOTALL)
_ALONG_TASKS: Final = ("input_lag", "records", "busy_us", "commit_age_ms")


def check_body(body: Body) -> None:
    """Raise DecodeError if fields contradict each other."""
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
    """Raise DecodeError if a slice has too many partitions, or lists of a different length than its partition count."""
    if _SUB.fullmatch(piece.sub) is None:
        raise refused("subs.sub", piece.sub, "the number of a sub-topology")
    if not (piece.first >= 0 and piece.count >= 0 and piece.first + piece.count <= TASKS_MAX):
        raise refused("subs.count", piece.count, f"partitions within 0 to {TASKS_MAX}")
    for name, given in (("end", piece.end), ("weight", piece.weight)):
        if given is not None:
            _check_length(f"subs.{name}", given, piece.count)
    if piece.racks is not None:
        for topic, racks in piece.racks.p.items():
            _check_length(f"subs.racks.{topic}", racks, piece.count)
            if any(not 0 <= place < len(piece.racks.names) for of in racks for place in of):
                raise refused(f"subs.racks.{topic}", racks, "indexes into the names of the racks")


def _check_length(where: str, given: Sequence[Any], wanted: int) -> None:
    if len(given) != wanted:
        raise refused(where, given, f"{wanted} values, one for each task or partition")
