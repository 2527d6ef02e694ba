"""Print and parse dates with Joda-Time patterns: output patterns print, input patterns parse.

Only the subset with the same result in every JVM is supported: no zone names, no two-digit years in input, English
names of months and weekdays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from streaming_lsm.errors import ConfigError

MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

_DAY_MS = 86_400_000
_HOUR_MS = 3_600_000
_UNIT_MS = {"H": _HOUR_MS, "h": _HOUR_MS, "K": _HOUR_MS, "k": _HOUR_MS, "a": _HOUR_MS, "m": 60_000, "s": 1000, "S": 1}
_PRINTED = "CyYxMwedDEaHhKkmsSZG"
_PARSED = "yYMdEaHhKkmsSZ"
_NUMERIC = "CyYxwedDHhKkmsS"


@dataclass(frozen=True)
class Token:
    """Run of one pattern letter, or literal text (then `letter` is empty)."""

    letter: str
    count: int
    literal: str = ""

    @property
    def numeric(self) -> bool:
        """Whether Joda prints this token as a number."""
        return self.letter != "" and (self.letter in _NUMERIC or (self.letter == "M" and self.count <= 2))


def tokenize(pattern: str, key: str, letters: str) -> tuple[Token, ...]:
    """Split `pattern` into tokens.

    Raises:
        ConfigError: a letter outside `letters`, a quote that is not closed, or an empty pattern; names `key`.
    """
    tokens = []
    for match in re.finditer(r"([A-Za-z])\1*|'((?:[^']|'')*)'|'|[^A-Za-z']+", pattern):
        letter, text = match[1], match[0]
        if text == "'":
            raise ConfigError(f"{key}={pattern!r} has a quote that is not closed; write '' for a quote itself")
        if letter and letter not in letters:
            raise ConfigError(f"{key}={pattern!r}: the pattern letter {letter!r} is not supported; use {letters}")
        if letter:
            tokens.append(Token(letter, len(text)))
        else:
            quoted = match[2]
            literal = text if quoted is None else ("'" if text == "''" else quoted.replace("''", "'"))
            tokens.append(Token("", len(literal), literal))
    if not tokens:
        raise ConfigError(f"{key} is empty; give a pattern such as yyyy/MM/dd")
    return tuple(tokens)


@dataclass(frozen=True)
class OutputPattern:
    """Pattern for printing partition values."""

    tokens: tuple[Token, ...]

    @classmethod
    def of(cls, pattern: str, key: str) -> OutputPattern:
        """Parse `pattern`; `key` is its option, for messages.

        Raises:
            ConfigError: the pattern is malformed or uses a letter that is not supported.
        """
        tokens = tokenize(pattern, key, _PRINTED)
        if any(token.letter == "Z" and token.count > 2 for token in tokens):
            raise ConfigError(f"{key}={pattern!r}: zone names (ZZZ) are not supported; use Z or ZZ")
        return cls(tokens)

    @property
    def granule_ms(self) -> int:
        """Milliseconds of local time within which the printed text cannot change."""
        return min((_UNIT_MS.get(token.letter, _DAY_MS) for token in self.tokens if token.letter), default=_DAY_MS)

    @property
    def ascends(self) -> bool:
        """Whether the texts of later local times are not smaller: numbers of fixed width, from the year down."""
        letters = [token for token in self.tokens if token.letter]
        order = "yMdHmsS"
        widths = {"y": 4, "S": 3}
        return "".join(token.letter for token in letters) == order[: len(letters)] and all(
            token.count == widths.get(token.letter, 2) for token in letters
        )

    @property
    def prints_offset(self) -> bool:
        """Whether the text depends on the zone's offset."""
        return any(token.letter == "Z" for token in self.tokens)

    def render(self, local: datetime, offset_ms: int = 0) -> str:
        """Print a local time without zone; `offset_ms` is its distance from UTC."""
        return "".join(_print_token(token, local, offset_ms) for token in self.tokens)


def _print_token(token: Token, local: datetime, offset_ms: int) -> str:
    letter, count = token.letter, token.count
    if not letter:
        return token.literal
    if letter in "yYx" and count == 2:
        return f"{_NUMBERS[letter](local) % 100:02d}"
    if letter == "M" and count >= 3:
        return _name(MONTHS[local.month - 1], count)
    if letter == "E":
        return _name(WEEKDAYS[local.weekday()], count)
    if letter == "S":
        return f"{local.microsecond // 1000:03d}".ljust(count, "0")[:count]
    if letter == "Z":
        return _print_offset(offset_ms, ":" if count == 2 else "")
    if letter in _WORDS:
        return _WORDS[letter](local)
    return str(_NUMBERS[letter](local)).rjust(count, "0")


def _name(name: str, count: int) -> str:
    return name if count > 3 else name[:3]


def _print_offset(offset_ms: int, separator: str) -> str:
    hours, minutes = divmod(abs(offset_ms) // 60_000, 60)
    return f"{'-' if offset_ms < 0 else '+'}{hours:02d}{separator}{minutes:02d}"


_WORDS: dict[str, Callable[[datetime], str]] = {
    "G": lambda _: "AD",
    "a": lambda local: "AM" if local.hour < 12 else "PM",
}
_NUMBERS: dict[str, Callable[[datetime], int]] = {
    "C": lambda local: local.year // 100,
    "y": lambda local: local.year,
    "Y": lambda local: local.year,
    "x": lambda local: local.isocalendar().year,
    "M": lambda local: local.month,
    "w": lambda local: local.isocalendar().week,
    "e": lambda local: local.isoweekday(),
    "d": lambda local: local.day,
    "D": lambda local: local.timetuple().tm_yday,
    "H": lambda local: local.hour,
    "k": lambda local: local.hour or 24,
    "K": lambda local: local.hour % 12,
    "h": lambda local: local.hour % 12 or 12,
    "m": lambda local: local.minute,
    "s": lambda local: local.second,
}


@dataclass(frozen=True)
class InputPattern:
    """Pattern for parsing texts.

    Attributes:
        pattern: text of the pattern.
        tokens: its parts; every letter occurs at most once, and one is a year.
    """

    pattern: str
    tokens: tuple[Token, ...]

    @classmethod
    def of(cls, pattern: str, key: str) -> InputPattern:
        """Parse `pattern`; `key` is its option, for messages.

        Raises:
            ConfigError: the pattern is malformed, uses a letter that cannot be parsed, repeats one, or has
                no year or a year of two digits (whose century would depend on the clock).
        """
        tokens = tokenize(pattern, key, _PARSED)
        letters = [token.letter.replace("Y", "y") for token in tokens if token.letter]
        fault = None
        if len(set(letters)) < len(letters):
            fault = "a pattern letter occurs twice"
        elif "y" not in letters:
            fault = "there is no year (yyyy)"
        elif any(token.letter in "yY" and token.count == 2 for token in tokens if token.letter):
            fault = "a two-digit year has no fixed century; use yyyy"
        elif "a" in letters and not {"h", "K"}.intersection(letters):
            fault = "a (AM or PM) needs an hour h or K"
        elif len({"H", "k", "h", "K"}.intersection(letters)) > 1:
            fault = "two letters give the hour"
        elif any(token.letter == "Z" and token.count > 2 for token in tokens):
            fault = "zone names (ZZZ) are not supported; use Z"
        if fault:
            raise ConfigError(f"{key}={pattern!r}: {fault}")
        return cls(pattern, tokens)

    @cached_property
    def regex(self) -> str:
        """RE2 expression for whole texts, with one group per letter (named like the letter, ``y`` for ``Y``)."""
        following = [*self.tokens[1:], Token("", 0)]
        return "^" + "".join(map(_token_regex, self.tokens, following)) + r"$"

    @property
    def letters(self) -> frozenset[str]:
        """Letters with a group in `regex`."""
        return frozenset(token.letter.replace("Y", "y") for token in self.tokens if token.letter)

    def render(self, local: datetime, offset_ms: int = 0) -> str:
        """Print a local time in this pattern."""
        return OutputPattern(self.tokens).render(local, offset_ms)


def _token_regex(token: Token, following: Token) -> str:
    letter, count = token.letter, token.count
    most = count if letter in "yYS" else 2
    # Joda does not backtrack: only the last of adjacent numbers may have fewer digits.
    digits = f"{most}" if following.numeric else f"1,{9 if letter in ('y', 'Y') else most}"
    if not letter:
        return f"(?i:{re.escape(token.literal)})"
    if letter in "yY":
        return rf"(?P<y>[+-]?\d{{{digits}}})"
    if letter == "M" and count >= 3:
        return _names_regex("M", MONTHS)
    if letter == "E":
        return _names_regex("E", WEEKDAYS)
    if letter == "a":
        return "(?P<a>AM|PM|am|pm)"
    if letter == "Z":
        return r"(?P<Z>[zZ]|[+-]\d{2}(?::?\d{2})?)"
    return rf"(?P<{letter}>\d{{{digits}}})"


def _names_regex(letter: str, names: Sequence[str]) -> str:
    forms = [form for name in names for text in (name, name[:3]) for form in (text, text.upper(), text.lower())]
    return f"(?P<{letter}>{'|'.join(dict.fromkeys(forms))})"
