"""Encode and decode what the footers of native logs say of the record keys of logs.

A *key entry* tells which record keys a log may hold: their number, their range and a bloom filter. The footer of a log
has its *own* entry, and may have an *accumulated* one: the key entries of other logs of its file group, so that one
footer tells of many logs. Entries are hints: one that is missing, damaged or of another file is left out, and the log
is searched. See docs/format/03-native-logs.md, "Key entries".
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streaming_lsm.bounded_json import parse_json
from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.format.base_file_footer import BLOOM_KEY, BLOOM_TYPE_KEY, MAX_KEY, MIN_KEY, bloom_of_footer
from streaming_lsm.format.bloom import BloomFilter

OWN_KEY = "lsm.log.keys"
"""Footer key of the check of the own entry."""
ACCUMULATED_KEY = "lsm.log.keys.accumulated"
_VERSION = 1
_CHECK_DIGITS = 8
_FRAME, _HEAD = 110, 13
"""Bytes of the names and numbers of a covered log, and of the head of each row of its filter."""
_DAMAGE = (ValueError, RecursionError, KeyError, TypeError, AttributeError, CorruptFileError, UnsupportedTable)


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """Tells the record keys of one file, without reading its rows.

    Attributes:
        keys: number of keys; repeated ones are counted repeatedly.
        span: the smallest and the largest key, by UTF-8 bytes; None if they are not known, or there is none.
        bloom: bloom filter of all keys; None without one.
    """

    keys: int
    span: tuple[str, str] | None
    bloom: BloomFilter | None


@dataclass(frozen=True, slots=True)
class CoveredLog:
    """A log that an accumulated entry covers.

    Attributes:
        name: its file name; it is a log of the same file group.
        size: its bytes, by which it is recognized.
        entry: its key entry.
    """

    name: str
    size: int
    entry: KeyEntry


def own_footer(entry: KeyEntry) -> dict[str, str]:
    """Encode the own entry of a log: Hudi's entries of base files, and a check of them."""
    footer: dict[str, str] = {}
    if entry.span is not None:
        footer |= {MIN_KEY: entry.span[0], MAX_KEY: entry.span[1]}
    if entry.bloom is not None:
        footer[BLOOM_KEY] = entry.bloom.encode()
        if entry.bloom.kind != "SIMPLE":
            footer[BLOOM_TYPE_KEY] = entry.bloom.kind
    check = {"keys": entry.keys, "crc32": _own_check({key.encode(): value.encode() for key, value in footer.items()})}
    return {**footer, OWN_KEY: json.dumps(check, separators=(",", ":"))}


def own_entry(metadata: Mapping[bytes, bytes] | None, rows: int) -> KeyEntry | None:
    """Decode the own entry of a log, or that of a base file.

    Ranges of other writers are left out, as theirs may be in the order of Java's strings
    (docs/format/07-index-and-metadata.md, "With and without a filter").

    Args:
        metadata: key-value metadata of the footer.
        rows: number of rows that the file has.

    Returns:
        The entry; None without one, and if it is damaged or contradicts the rows.
    """
    footer = metadata or {}
    text = footer.get(OWN_KEY.encode())
    try:
        bloom = bloom_of_footer(footer, "footer")
        if text is None:
            return None if bloom is None else KeyEntry(rows, None, bloom)
        check = parse_json(text)
        if check["keys"] != rows or check["crc32"] != _own_check(footer):
            return None
        span = footer.get(MIN_KEY.encode()), footer.get(MAX_KEY.encode())
        whole = None if span[0] is None or span[1] is None else (span[0].decode(), span[1].decode())
        return KeyEntry(rows, whole, bloom)
    except _DAMAGE:
        return None


def _own_check(footer: Mapping[bytes, bytes]) -> int:
    names = (MIN_KEY, MAX_KEY, BLOOM_TYPE_KEY, BLOOM_KEY)
    return zlib.crc32(b"\n".join(footer.get(name.encode(), b"") for name in names))


def accumulated_text(logs: Sequence[CoveredLog]) -> str:
    """Encode an accumulated entry: a checksum of eight hexadecimal digits, and JSON."""
    covered = [_encoded(log) for log in logs]
    text = json.dumps({"version": _VERSION, "logs": covered}, separators=(",", ":"), ensure_ascii=False)
    return f"{zlib.crc32(text.encode()):08x}{text}"


def covered_bytes(log: CoveredLog) -> int:
    """Return about how many bytes a log takes in an accumulated entry."""
    rows = () if log.entry.bloom is None else log.entry.bloom.rows
    texts = len(log.name.encode()) + sum(len(key.encode()) for key in log.entry.span or ())
    return _FRAME + texts + sum(_HEAD + len(row) for row in rows) * 4 // 3


def covered_logs(metadata: Mapping[bytes, bytes] | None) -> tuple[CoveredLog, ...]:
    """Decode the accumulated entry of a footer; nothing without one, and if it is damaged."""
    data = (metadata or {}).get(ACCUMULATED_KEY.encode(), b"")
    check, text = data[:_CHECK_DIGITS], data[_CHECK_DIGITS:]
    if not text or check != b"%08x" % zlib.crc32(text):
        return ()
    try:
        said = parse_json(text)
        return tuple(_covered(log) for log in said["logs"]) if said["version"] == _VERSION else ()
    except _DAMAGE:
        return ()


def _encoded(log: CoveredLog) -> dict[str, object]:
    entry = log.entry
    found: dict[str, object] = {"name": log.name, "size": log.size, "keys": entry.keys}
    if entry.span is not None:
        found |= {"min": entry.span[0], "max": entry.span[1]}
    if entry.bloom is not None:
        found |= {"type": entry.bloom.kind, "bloom": entry.bloom.encode()}
    return found


def _covered(said: Mapping[str, Any]) -> CoveredLog:
    name, size, keys = said["name"], said["size"], said["keys"]
    span = (said["min"], said["max"]) if "min" in said else None
    texts = isinstance(name, str) and all(isinstance(key, str) for key in span or ())
    if not texts or type(size) is not int or type(keys) is not int:
        raise ValueError("a covered log of other types")
    bloom = BloomFilter.decode(said["bloom"], said["type"]) if "bloom" in said else None
    return CoveredLog(name, size, KeyEntry(keys, span, bloom))
