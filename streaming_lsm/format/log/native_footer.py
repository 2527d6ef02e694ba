"""Encode and decode the footer of a native log, one JSON entry in the Parquet key-value metadata.

See docs/format/03-native-logs.md, "Footer entry".
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from streaming_lsm.bounded_json import SMALL, parse_json
from streaming_lsm.errors import CorruptFileError, UnsupportedTable
from streaming_lsm.format.table.file_names import LogFileName, LogKind

LOG_FORMAT_VERSION = 2
FOOTER_KEY = b"hudi.log.format.metadata"
_ENTRY_PREFIX = b"hudi.log.format."
UNTIL_KEY = "lsm.tombstones.until"
"""Footer key of a delete log that a compaction wrote (docs/format/06-services.md, "Kept deletes")."""
CHAIN_KEY = "lsm.compacted.chain"
"""Footer key of a log that a log compaction wrote (docs/format/06-services.md, "Log compaction")."""
Chain: TypeAlias = Mapping[str, tuple[str, ...]]
"""The instants of log compactions that a later one replaced, and what each of them had replaced, ascending."""
_MOST_HEADER = 2 * SMALL
_INSTANT_DIGITS = (14, 17)


@dataclass(frozen=True, slots=True)
class LogHeader:
    """Header entries of a native log.

    Attributes:
        instant: the instant in its file name.
        schema: Avro JSON of the table with the meta columns, in data logs and in delete logs; in change logs that of
            their own records.
        is_partial: whether rows have only some of the columns (never written by this package).
        compacted: instants whose logs this log replaces, ascending; empty unless a log compaction wrote it.
        version: log format version.
        chain: of `compacted`, and of what these replaced, the instants of log compactions; None if it is not known.
        until: of a delete log that a compaction wrote, the time of its newest delete; else empty.
    """

    instant: str
    schema: str
    is_partial: bool = False
    compacted: tuple[str, ...] = ()
    version: int = LOG_FORMAT_VERSION
    until: str = ""
    chain: Chain | None = None

    def to_footer(self) -> dict[bytes, bytes]:
        """Encode as key-value metadata for the Parquet writer."""
        values = {"VERSION": str(self.version), "INSTANT_TIME": self.instant, "SCHEMA": self.schema}
        if self.is_partial:
            values["IS_PARTIAL"] = "true"
        if self.compacted:
            values["COMPACTED_BLOCK_TIMES"] = ",".join(sorted(self.compacted))
        footer = {FOOTER_KEY: json.dumps(values, separators=(",", ":"), ensure_ascii=False).encode()}
        if self.chain is not None:
            chain = {instant: ",".join(times) for instant, times in sorted(self.chain.items())}
            footer[CHAIN_KEY.encode()] = json.dumps(chain, separators=(",", ":")).encode()
        return footer

    @classmethod
    def from_footer(cls, metadata: Mapping[bytes, bytes] | None, name: LogFileName, source: str) -> LogHeader:
        """Decode and check the footer of a data or delete log.

        Args:
            metadata: key-value metadata of the Parquet footer.
            name: the parsed name of the file; must have the instant of the footer.
            source: the file, for messages.

        Raises:
            CorruptFileError: a required entry is missing, malformed or contradicts the name.
            UnsupportedTable: the log format is newer than 2.
            ValueError: `name` is that of a change log, which need not have a footer entry.
        """
        if name.kind is LogKind.CDC:
            raise ValueError(f"{source}: change logs need not have a footer entry")
        values = _values(metadata or {}, source)
        version = _version(values.get("VERSION"), source)
        instant = values.get("INSTANT_TIME", name.instant)
        if instant != name.instant:
            raise CorruptFileError(
                f"{source}: footer INSTANT_TIME={instant!r:.80} is not the instant of the file's name; restore the file"
            )
        compacted = _times(values.get("COMPACTED_BLOCK_TIMES", ""))
        is_partial = values.get("IS_PARTIAL", "").lower() == "true"
        schema = values.get("SCHEMA")
        if schema is None:
            raise CorruptFileError(f"{source}: footer has no SCHEMA entry; restore the file")
        schema_columns(schema, source)
        until, chain = _until(metadata or {}, source), _chain(metadata or {}, source)
        return cls(instant, schema, is_partial, compacted, version, until, chain)


def schema_columns(schema: str, source: str, entry: str = "SCHEMA") -> tuple[str, ...]:
    """Return the column names of the Avro record in a footer entry.

    Raises:
        CorruptFileError: the entry is not an Avro record; the message names `source`.
    """
    found = _names(schema)
    if found is None:
        raise CorruptFileError(f"{source}: footer {entry} is not the JSON of an Avro record; restore the file")
    return found


@functools.lru_cache(maxsize=16)
def _names(schema: str) -> tuple[str, ...] | None:
    """Return the column names of an Avro record, None if it is not one; the logs of a table repeat a few schemas."""
    try:
        record = parse_json(schema)
        if record["type"] == "record":
            return tuple(str(field["name"]) for field in record["fields"])
    except (ValueError, RecursionError, KeyError, TypeError):
        pass
    return None


def _values(metadata: Mapping[bytes, bytes], source: str) -> dict[str, str]:
    """Return the header entries, from one JSON object, or, in early files, from one footer key per entry."""
    text = metadata.get(FOOTER_KEY)
    try:
        if text is None:
            found = {k.removeprefix(_ENTRY_PREFIX): v for k, v in metadata.items() if k.startswith(_ENTRY_PREFIX)}
            return {key.decode(): value.decode() for key, value in found.items()}
        values = parse_json(text, _MOST_HEADER)
    except (ValueError, RecursionError):
        raise CorruptFileError(f"{source}: footer {FOOTER_KEY.decode()} is not JSON; restore the file") from None
    if not isinstance(values, dict):
        raise CorruptFileError(f"{source}: footer {FOOTER_KEY.decode()} is not a JSON object; restore the file")
    for key, value in values.items():
        if not isinstance(value, str | None):
            raise CorruptFileError(f"{source}: footer entry {key!r:.80} is not a text; restore the file")
    return {key: value for key, value in values.items() if value is not None}


def _until(metadata: Mapping[bytes, bytes], source: str) -> str:
    value = metadata.get(UNTIL_KEY.encode(), b"")
    if value and not (value.isdigit() and len(value) in _INSTANT_DIGITS):
        raise CorruptFileError(f"{source}: footer {UNTIL_KEY}={value!r:.80} is not an instant time; restore the file")
    return value.decode()


def _times(text: str) -> tuple[str, ...]:
    return tuple(filter(None, (time.strip() for time in text.split(","))))


def _chain(metadata: Mapping[bytes, bytes], source: str) -> Chain | None:
    text = metadata.get(CHAIN_KEY.encode())
    if text is None:
        return None
    try:
        values = parse_json(text, _MOST_HEADER)
        return {str(instant): _times(times) for instant, times in values.items()}
    except (ValueError, RecursionError, AttributeError):
        raise CorruptFileError(
            f"{source}: footer {CHAIN_KEY} is not a JSON object of texts; restore the file"
        ) from None


def _version(text: str | None, source: str) -> int:
    if text is None:
        return LOG_FORMAT_VERSION
    if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) < 1:
        raise CorruptFileError(f"{source}: footer VERSION={text!r:.80} is not a version number; restore the file")
    if int(text) > LOG_FORMAT_VERSION:
        raise UnsupportedTable(
            f"{source}: log format version {int(text)} is newer than {LOG_FORMAT_VERSION}, "
            "the newest that this release reads; use a newer release"
        )
    return int(text)
