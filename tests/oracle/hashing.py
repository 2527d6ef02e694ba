"""Bucket hash and bloom filters (docs/format/07-index-and-metadata.md)."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

NULL_TEXT = "__null__"
EMPTY_TEXT = "__empty__"
MASK = 0xFFFFFFFF


def java_string_hash(text: str) -> int:
    """Return java.lang.String.hashCode as an unsigned 32-bit number."""
    units = text.encode("utf-16-le")
    value = 0
    for (unit,) in struct.iter_unpack("<H", units):
        value = (31 * value + unit) & MASK
    return value


def java_list_hash(values: Sequence[str | None]) -> int:
    """Return java.util.List.hashCode of strings as an unsigned 32-bit number."""
    value = 1
    for item in values:
        value = (31 * value + (0 if item is None else java_string_hash(item))) & MASK
    return value


def hash_values(key: str, key_fields: Sequence[str], hash_fields: Sequence[str]) -> list[str | None]:
    """Take the hashed values out of a record key.

    See docs/format/07-index-and-metadata.md, "Simple bucket index"; docs/format/10-rules.md, "Rule 13".
    """
    if "," not in key or ":" not in key:
        return [key]
    kept: list[str | None] = []
    rest = key
    for place, field in enumerate(key_fields):
        if not rest.startswith(f"{field}:"):
            break
        rest = rest[len(field) + 1 :]
        follower = f",{key_fields[place + 1]}:" if place + 1 < len(key_fields) else None
        end = rest.find(follower) if follower else -1
        value = rest if end < 0 else rest[:end]
        rest = "" if end < 0 else rest[end + 1 :]
        if field in hash_fields:
            kept.append({NULL_TEXT: None, EMPTY_TEXT: ""}.get(value, value))
    return kept or [key]


def bucket_of(key: str, key_fields: Sequence[str], hash_fields: Sequence[str], buckets: int) -> int:
    """Return the bucket number of a record key."""
    return (java_list_hash(hash_values(key, key_fields, hash_fields)) & 0x7FFFFFFF) % buckets


def _signed(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def murmur2(data: bytes, seed: int) -> int:
    """Return Hadoop's MurmurHash (tail bytes sign-extended) as an unsigned 32-bit number."""
    m = 0x5BD1E995
    h = (seed ^ len(data)) & MASK
    whole = len(data) & ~3
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        k = (word * m) & MASK
        k = ((k ^ (k >> 24)) * m) & MASK
        h = ((h * m) & MASK) ^ k
    tail = data[whole:]
    if tail:
        for place, byte in enumerate(tail):
            h ^= (_signed(byte) << (8 * (len(tail) - 1 - place))) & MASK
        h = (h * m) & MASK
    h ^= h >> 13
    h = (h * m) & MASK
    return h ^ (h >> 15)


def positions(key: bytes, hashes: int, size: int) -> list[int]:
    """Return the bit positions of a key; each seed is the hash before it."""
    out: list[int] = []
    seed = 0
    for _ in range(hashes):
        seed = murmur2(key, seed)
        signed = seed - (1 << 32) if seed >> 31 else seed
        out.append(abs(signed) % size)
    return out


@dataclass(frozen=True)
class Bloom:
    """A decoded filter: a key is a member if any row has all of its bits."""

    hashes: int
    size: int
    rows: tuple[bytes, ...]

    def might_contain(self, key: str) -> bool:
        bits = positions(key.encode("utf-8"), self.hashes, self.size)
        return any(all(row[bit >> 3] >> (bit & 7) & 1 for bit in bits) for row in self.rows)


def _row(raw: bytes, at: int) -> tuple[tuple[int, int], bytes, int]:
    version, hashes, kind, size = struct.unpack_from(">iibi", raw, at)
    if (version, kind) != (-1, 1):
        raise ValueError(f"bloom head is version {version}, hash type {kind}")
    width = (size + 7) // 8
    body = raw[at + 13 : at + 13 + width]
    if len(body) != width:
        raise ValueError("bloom filter is cut short")
    return (hashes, size), body, at + 13 + width


def decode_bloom(text: str, dynamic: bool) -> Bloom:
    """Decode the footer text of a SIMPLE or DYNAMIC_V0 filter; raises ValueError if bytes are off."""
    raw = base64.b64decode(text, validate=True)
    if not dynamic:
        head, body, end = _row(raw, 0)
        rows = [body]
    else:
        version, hashes, kind, size, _nr, _current, count = struct.unpack_from(">iibiiii", raw, 0)
        if (version, kind) != (-1, 1):
            raise ValueError(f"bloom head is version {version}, hash type {kind}")
        head, rows, end = (hashes, size), [], 25
        for _ in range(count):
            found, body, end = _row(raw, end)
            if found != head:
                raise ValueError(f"bloom row {found} differs from its head {head}")
            rows.append(body)
    if end != len(raw):
        raise ValueError(f"bloom filter has {len(raw) - end} bytes too many")
    return Bloom(*head, tuple(rows))


def encode_bloom(keys: Iterable[str], per_row: int = 50, rate: float = 1e-9) -> str:
    """Make a DYNAMIC_V0 filter text; a new row starts after ``per_row`` entries."""
    size = math.ceil(per_row * -math.log(rate) / math.log(2) ** 2)
    hashes = math.ceil(math.log(2) * size / per_row)
    rows, current = [bytearray((size + 7) // 8)], 0
    for key in keys:
        if current == per_row:
            rows.append(bytearray((size + 7) // 8))
            current = 0
        for bit in positions(key.encode("utf-8"), hashes, size):
            rows[-1][bit >> 3] |= 1 << (bit & 7)
        current += 1
    head = struct.pack(">iibi", -1, hashes, 1, size)
    body = b"".join(head + bytes(row) for row in rows)
    return base64.b64encode(head + struct.pack(">iii", per_row, current, len(rows)) + body).decode("ascii")
