"""Divide the memory of one task among its parts, and measure the use of each part."""

from __future__ import annotations

from dataclasses import dataclass

_SMALLEST_BATCH = 64 << 10
_LARGEST_FAN_IN = 64
_LARGEST_HELD = 1 << 30
_LARGEST_BLOCK = 1 << 28
_LARGEST_BATCH = 8 << 20
"""Joined columns of text must stay below 2 GiB, also those of one and a half times as many rows as are asked for."""


@dataclass(frozen=True)
class Budget:
    """Defines the share of each part in one task's memory.

    Attributes:
        total: bytes in all.
    """

    total: int

    @property
    def pending(self) -> int:
        """Limit of the pending rows; memory for sorting is counted separately as rows arrive."""
        return min(self.total, _LARGEST_HELD)

    @property
    def chunk(self) -> int:
        """Arrived batches up to this size are copied together, so that their source buffers can be freed."""
        return min(_LARGEST_BLOCK, self.total // 16)

    @property
    def block(self) -> int:
        """Size of the blocks of rows that are gathered and encoded one after another."""
        return min(_LARGEST_BLOCK, self.total // 16)

    @property
    def row_group(self) -> int:
        """Limit of the rows of an open row group."""
        return self.total // 12

    @property
    def encoding(self) -> int:
        """Memory for writing: two blocks, one open row group, and twice that for encoding."""
        return 2 * self.block + 3 * self.row_group

    @property
    def batch(self) -> int:
        """Size of one batch of a spilled run."""
        return max(_SMALLEST_BATCH, min(_LARGEST_BATCH, self.total // 512))

    @property
    def fan_in(self) -> int:
        """Number of runs merged at a time; their loaded batches take an eighth of the budget."""
        return max(4, min(_LARGEST_FAN_IN, self.total // 8 // self.batch))

    @property
    def beside_runs(self) -> int:
        """Pending rows that may stay in memory while spilled runs are merged, sorting memory included."""
        return self.total // 8

    @property
    def beside_keyed(self) -> Budget:
        """Budget of rows whose keys are looked up, which copies them, and of those that were, while others follow."""
        return Budget(self.total // 2)


class Meter:
    """Counts bytes in use by part, and keeps the peak of their sum."""

    def __init__(self) -> None:
        """Start with no bytes in use."""
        self._parts: dict[str, int] = {}
        self.peak = 0

    def count(self, part: str, in_use: int) -> None:
        """Set the bytes that `part` uses."""
        self._parts[part] = in_use
        self.peak = max(self.peak, self.in_use)

    def clear(self) -> None:
        """Set the bytes of all parts to 0."""
        self._parts.clear()

    @property
    def in_use(self) -> int:
        """Bytes of all parts."""
        return sum(self._parts.values())
