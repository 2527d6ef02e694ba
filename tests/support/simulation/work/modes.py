"""The concurrency modes of a table, and the options with which writers use them, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping
from enum import Enum

from streaming_lsm.config import (
    CONCURRENCY_MODE,
    CONFLICT_RETRIES,
    EARLY_CONFLICTS,
    FAILED_WRITES,
    SINGLE_WRITER_WAIT_MS,
)


class Mode(Enum):
    """How writers of one table are kept apart, by Hudi's names."""

    SINGLE_WRITER = "SINGLE_WRITER"
    OPTIMISTIC = "OPTIMISTIC_CONCURRENCY_CONTROL"
    NON_BLOCKING = "NON_BLOCKING_CONCURRENCY_CONTROL"

    @property
    def is_shared(self) -> bool:
        """Whether several writers write at once."""
        return self is not Mode.SINGLE_WRITER


_WEIGHTS = {Mode.SINGLE_WRITER: 4, Mode.OPTIMISTIC: 4, Mode.NON_BLOCKING: 3}


def draw_mode(chance: random.Random) -> Mode:
    """Draw the mode of a table."""
    return chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]


def options_of_mode(mode: Mode) -> Mapping[str, object]:
    """The options that make the mode."""
    return {CONCURRENCY_MODE.key: mode.value} if mode.is_shared else {}


def draw_options(chance: random.Random, mode: Mode) -> Mapping[str, object]:
    """Draw the options that all writers of a table share."""
    if not mode.is_shared:
        return {}
    options = {
        **options_of_mode(mode),
        FAILED_WRITES.key: chance.choice(("EAGER", "LAZY")),
        CONFLICT_RETRIES.key: chance.choice((0, 1, 3, 5, 5)),
        # For how long a write waits for one that is made alone, and that one for those that are pending.
        SINGLE_WRITER_WAIT_MS.key: chance.choice((0, 0, 200, 10_000)),
        "hoodie.bucket.index.num.buckets": chance.choice((2, 2, 4)),
    }
    return {**options, EARLY_CONFLICTS.key: True} if mode is Mode.OPTIMISTIC and chance.random() < 0.4 else options


def early_detection() -> tuple[tuple[str, object], ...]:
    """The option with which writers look for each other's markers."""
    return ((EARLY_CONFLICTS.key, True),)
