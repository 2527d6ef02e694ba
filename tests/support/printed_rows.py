"""Rows that the command line printed as JSON, in the form of the stored reads."""

from __future__ import annotations

import re
from pathlib import Path

_ZONE = re.compile(r'(T\d\d:\d\d:\d\d\.\d{6})Z"')


def printed_lines(path: Path) -> list[str]:
    """The lines of a file, sorted; the stored reads have times of both kinds without a zone."""
    return sorted(_ZONE.sub(r'\1"', line) for line in path.read_text(encoding="utf-8").splitlines())
