"""Modified UTF-8, the text encoding of Java's ``DataOutput.writeUTF``.

It encodes UTF-16 code units, not code points. A character above U+FFFF is encoded as its two surrogates with three
bytes each, so four-byte forms do not exist. U+0000 has the over-long form ``c0 80``. Reading is as lenient as Java's
``readUTF``: it accepts plain zero bytes, over-long forms and lone surrogates. It rejects a sequence that is cut off or
starts with an impossible byte. For ASCII without U+0000, which is by far the most common text, the encoding is plain
ASCII.
"""

from __future__ import annotations

__all__ = ["decode_mutf", "encode_mutf"]


def encode_mutf(text: str) -> bytes:
    """Encode text, without a length prefix."""
    if text.isascii() and "\0" not in text:
        return text.encode("ascii")
    units = text.encode("utf-16-be", "surrogatepass")
    out = bytearray()
    for high, low in zip(units[::2], units[1::2], strict=True):
        unit = high << 8 | low
        if 0 < unit < 0x80:
            out.append(unit)
        elif unit < 0x800:
            out += bytes((0xC0 | unit >> 6, 0x80 | unit & 0x3F))
        else:
            out += bytes((0xE0 | unit >> 12, 0x80 | unit >> 6 & 0x3F, 0x80 | unit & 0x3F))
    return bytes(out)


def decode_mutf(encoded: bytes) -> str:
    """Decode all of ``encoded``. Raises ValueError with the position if it is malformed."""
    if encoded.isascii():
        return encoded.decode("ascii")
    units = bytearray()
    at = 0
    while at < len(encoded):
        lead = encoded[at]
        if lead < 0x80:
            size, unit = 1, lead
        elif lead & 0xE0 == 0xC0:
            size, unit = 2, lead & 0x1F
        elif lead & 0xF0 == 0xE0:
            size, unit = 3, lead & 0x0F
        else:
            raise ValueError(f"byte {at} cannot start a character")
        tail = encoded[at + 1 : at + size]
        if len(tail) != size - 1:
            raise ValueError(f"the character at byte {at} is cut off")
        for byte in tail:
            if byte & 0xC0 != 0x80:
                raise ValueError(f"the character at byte {at} is broken")
            unit = unit << 6 | byte & 0x3F
        units += unit.to_bytes(2, "big")
        at += size
    return units.decode("utf-16-be", "surrogatepass")
