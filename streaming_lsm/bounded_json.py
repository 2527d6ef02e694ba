"""Parse JSON of untrusted files at a bounded cost.

The *parts* of a text are its brackets, braces and commas that open a value or separate two: their number limits the
objects that parsing creates, which take up to 30 times the bytes of the text.
"""

from __future__ import annotations

import json
from typing import Any

SMALL = 4 << 20
"""Most characters of a schema, a ledger or a manifest; a table of 10,000 columns has a schema of 0.7 million."""
_PER_PART = 8
"""Least average of characters per part in a long text; commits and schemas have at least 10."""


def parse_json(text: str | bytes, most: int | None = SMALL) -> Any:
    """Parse JSON after checking its length and the number of its parts.

    Args:
        text: the JSON; its length is counted in characters, or in bytes.
        most: limit of the length; None if the caller has limited it.

    Raises:
        ValueError: the text is not JSON, too long, or has more parts than one for 8 characters. A short text may have
            as many parts as one of `SMALL`.
        RecursionError: the JSON is nested too deeply.
    """
    if most is not None and len(text) > most:
        raise ValueError(f"JSON of {len(text)} characters, {most} at most are expected")
    limit = max(len(text), SMALL) // _PER_PART
    parts = sum(text.count(mark) if isinstance(text, str) else text.count(mark.encode()) for mark in "[{,")
    if parts > limit:
        raise ValueError(f"JSON of {parts} parts in {len(text)} characters, {limit} at most are expected")
    return json.loads(text)
