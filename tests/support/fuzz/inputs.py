"""Generation of fuzz inputs from valid bytes.

An input is valid, or truncated, mutated, spliced with another valid one, enlarged, or replaced by random bytes. Or some
bytes of a valid input are overwritten with an extreme number, as a wrong length.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

_GROWN_ONE_IN: Final = 400
"""One in this number of inputs is enlarged; such inputs are slow."""

_HURTFUL: Final = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\x00\x01\x86\xa1",
    b"\xff\xff\xff\xfe",
    b"\x7f\xff",
    b"\xff\xff",
    b"\x00\x00\x00\x00",
    b"\x00\x00\x00\x0c",
)

_NESTING: Final = (b"[", b'{"a":', b"((", b"<a>")


def inputs_for(
    corpus: Sequence[bytes], rng: random.Random, *, bytes_max: int = 1 << 20
) -> Iterator[tuple[bytes, bool]]:
    """Yield (input, whether it was enlarged or contains an extreme number), indefinitely.

    ``bytes_max`` limits enlarged inputs.
    """
    while True:
        base = rng.choice(corpus)
        if rng.randrange(_GROWN_ONE_IN) == 0:
            yield _grown(base, rng, bytes_max), True
            continue
        match rng.randrange(8):
            case 0:
                yield base, False
            case 1:
                yield base[: rng.randrange(len(base) + 1)], False
            case 2 | 3:
                yield _mutated(base, rng), False
            case 4:
                other = rng.choice(corpus)
                yield base[: rng.randrange(len(base) + 1)] + other[rng.randrange(len(other) + 1) :], False
            case 5 | 6:
                at = rng.randrange(len(base) + 1)
                number = rng.choice(_HURTFUL)
                yield base[:at] + number + base[at + len(number) :], True
            case _:
                yield rng.randbytes(rng.choice((0, 1, 3, 8, 40, 400))), False


def _mutated(base: bytes, rng: random.Random) -> bytes:
    data = bytearray(base)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        if not data:
            break
        at = rng.randrange(len(data))
        match rng.randrange(4):
            case 0:
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                data[at] = rng.randrange(256)
            case 2:
                del data[at : at + rng.randrange(1, 9)]
            case _:
                data[at:at] = data[at : at + rng.randrange(1, 60)]
    return bytes(data)


def _grown(base: bytes, rng: random.Random, bytes_max: int) -> bytes:
    """Enlarge the input by repeating a piece of it, or an opening bracket."""
    start = rng.randrange(len(base) + 1)
    piece = rng.choice((base[start : start + rng.choice((1, 4, 40, 400))], rng.choice(_NESTING)))
    size = min(bytes_max, rng.choice((10_000, 100_000, bytes_max)))
    times = (size - len(base)) // max(1, len(piece))
    return base[:start] + piece * max(0, times) + base[start:]


def find_vectors() -> Path | None:
    """Return the folder of recorded vectors in the checkout of this package; None outside a checkout."""
    for parent in Path(__file__).resolve().parents:
        folder = parent / "protocol" / "vectors"
        if folder.is_dir():
            return folder
    return None


def recorded(folder: Path | None, wanted: tuple[str, str] | None) -> list[bytes]:
    """Return the bytes of recorded vectors.

    ``wanted`` is (prefix of the file name, kind of case; empty for all). Without a folder the result is empty.
    """
    if folder is None or wanted is None:
        return []
    name, kind = wanted
    found = []
    for path in sorted(folder.glob(f"{name}*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            case: Mapping[str, object] = json.loads(line)
            text = case.get("hex")
            if isinstance(text, str) and (not kind or case.get("kind") == kind):
                found.append(bytes.fromhex(text))
    return found
