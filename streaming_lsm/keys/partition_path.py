"""Escape partition values, and reject partition paths that are unsafe or reserved.

See docs/format/01-table.md, "Partition path"; docs/format/10-rules.md, "Rule 32".
"""

from __future__ import annotations

import re

DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"

_ESCAPED = [*map(chr, range(0x20)), "\x7f", *"\"#%'*/:=?\\{[]^"]
_ESCAPES = str.maketrans({character: f"%{ord(character):02X}" for character in _ESCAPED})
_ESCAPE = re.compile("%([0-9A-Fa-f]{2})")
_SEGMENT_BYTES = 255
"""Longest file name that file systems accept."""
_PATH_BYTES = 3072
"""Limit of a partition path; the rest of the 4,096 bytes of a Linux path is for the table's path and file names."""
_RESERVED = {".hoodie", ".hoodie_partition_metadata"}


def escape_partition_value(value: str) -> str:
    """Escape every character that is not allowed in a path as ``%XX``, like Hive's ``escapePathName``."""
    return value.translate(_ESCAPES)


def unescape_partition_value(text: str) -> str:
    """Reverse `escape_partition_value`; a ``%`` without two hexadecimal digits is kept."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), text)


def path_fault(path: str) -> str | None:
    """Return the reason why `path`, relative to the table, is not a valid partition path; ``None`` if it is valid.

    Values with ``/`` give nested folders, as in Hudi. A backslash is treated as a separator for ``..`` only.
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
