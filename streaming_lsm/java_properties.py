r"""Parse and print Java Properties text: Latin-1 with ``\uXXXX`` escapes, as in `java.util.Properties`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from streaming_lsm.errors import CorruptFileError

_BLANK = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_SEPARATOR = re.compile(r"(?:[^\\=: \t\f]|\\.)*", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|.?)", re.DOTALL)
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_PRINTED = str.maketrans({"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"} | {c: "\\" + c for c in "\\=:#!"})


def parse_properties(data: bytes, source: str = "properties text") -> dict[str, str]:
    """Parse Java Properties text; the last value of a repeated key wins.

    Args:
        data: the bytes of the file.
        source: name of the file, for messages.

    Raises:
        CorruptFileError: a ``\\u`` escape without four hexadecimal digits.
    """
    values: dict[str, str] = {}
    for line in _logical_lines(data.decode("latin-1")):
        match = _SEPARATOR.match(line)
        end = match.end() if match else 0
        rest = line[end:].lstrip(_BLANK)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_BLANK)
        values[_unescape(line[:end], source)] = _unescape(rest, source)
    return values


def print_properties(values: Mapping[str, str], comments: Sequence[str] = ()) -> bytes:
    """Print `values` as Java Properties text that `java.util.Properties` and `parse_properties` read back.

    Args:
        values: printed in the order of the mapping.
        comments: lines at the top, each after a ``#``.
    """
    lines = ["#" + line for comment in comments for line in _LINE_END.split(comment)]
    lines = [re.sub(r"[^\t\x20-\x7e]", _unicode_escape, line) for line in lines]
    lines += [f"{_escape(key, spaces=-1)}={_escape(value, spaces=1)}" for key, value in values.items()]
    return "".join(line + "\n" for line in lines).encode("latin-1")


def _logical_lines(text: str) -> Iterator[str]:
    """Yield lines with their continuations joined, without comments, blank lines and leading blanks."""
    parts: list[str] = []
    for natural in _LINE_END.split(text):
        line = natural.lstrip(_BLANK)
        if not parts and (not line or line[0] in "#!"):
            continue
        # An odd number of trailing backslashes means that the last one escapes the line end.
        continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        parts.append(line[:-1] if continued else line)
        if not continued:
            yield "".join(parts)
            parts = []
    if parts:
        yield "".join(parts)


def _unescape(text: str, source: str) -> str:
    if "\\" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        body = match.group(1)
        if len(body) == 5:
            return chr(int(body[1:], 16))
        if body == "u":
            raise CorruptFileError(f"{source}: malformed escape in {text!r}; \\u needs four hexadecimal digits")
        return _CONTROL.get(body, body)

    units = _ESCAPE.sub(replace, text)
    # Two escaped surrogates are one character; a lone one stays as it is, like in Java.
    return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _escape(text: str, spaces: int) -> str:
    """Escape a key (every space) or a value (its leading space only)."""
    printed = text.translate(_PRINTED)
    if spaces < 0 or printed.startswith(" "):
        printed = printed.replace(" ", "\\ ", spaces)
    return re.sub(r"[^\x20-\x7e]", _unicode_escape, printed)


def _unicode_escape(match: re.Match[str]) -> str:
    units = match.group().encode("utf-16-be", "surrogatepass").hex().upper()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))
