"""Escaping of partition values, and the partition paths that would leave the table.

(docs/format/01-table.md, "Partition path"; docs/format/10-rules.md, "Rule 32")
"""

from __future__ import annotations

import re

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"

_ESCAPED = [*map(chr, range(0x20)), "\x7f", *"\"#%'*/:=?\\{[]^"]
_ESCAPES = str.maketrans({character: f"%{ord(character):02X}" for character in _ESCAPED})
_ESCAPE = re.compile("%([0-9A-Fa-f]{2})")
_SEGMENT_BYTES = 255
"""The longest name that file systems take."""
_PATH_BYTES = 3072
"""Of the 4,096 bytes that Linux takes; the rest is for the table's own folder and the names of files."""
_RESERVED = {".hoodie", ".hoodie_partition_metadata"}


def escape_partition_value(value: str) -> str:
    """Write every character that a path could not hold as ``%XX``, as Hive's ``escapePathName`` does."""
    return value.translate(_ESCAPES)


def unescape_partition_value(text: str) -> str:
    """Undo `escape_partition_value`; a ``%`` without two hexadecimal digits stays."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)


def path_fault(path: str) -> str | None:
    """Say why `path`, relative to the table, may not be a partition; ``None`` if it may.

    Values with ``/`` make nested folders, as in Hudi. A backslash counts as a separator for ``..`` only.
    """
    if any(character in path for character in "\0\n\r"):
        return "it holds a line break or a NUL character"
    if path.startswith("/"):
        return "it is an absolute path"
    segments = path.split("/")
    if ".." in path.replace("\\", "/").split("/"):
        return "its segment '..' leaves the table's folder"
    if "." in segments or "" in segments:
        return "it has an empty segment or the segment '.'"
    if max(len(segment.encode()) for segment in segments) > _SEGMENT_BYTES:
        return f"it has a segment of more than {_SEGMENT_BYTES} bytes"
    if len(path.encode()) > _PATH_BYTES:
        return f"it has more than {_PATH_BYTES} bytes"
    reserved = sorted(_RESERVED.intersection(segments))
    return f"{reserved[0]} is the table's own" if reserved else None
