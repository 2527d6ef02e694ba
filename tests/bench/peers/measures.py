"""What a run measures."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.processor import processor_seconds

STARTED = time.perf_counter()
"""When the process of the run began, but for the start of Python."""


def percentile(values: Sequence[float], share: float) -> float:
    """The least of the values that at least `share` of them are not above.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("there are no values")
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def folder_size(folder: Path) -> tuple[int, int]:
    """Bytes and number of the files below a folder."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return sum(sizes), len(sizes)


@dataclass
class Watch:
    """Times calls, and the processor time of this process and all that it started.

    Attributes:
        seconds: of each call.
        processor: seconds of the processor, of all calls and what ran beside them.
    """

    seconds: list[float] = field(default_factory=list)
    processor: float = 0.0

    def __enter__(self) -> Watch:
        self._begun = processor_seconds(os.getpid())
        return self

    def __exit__(self, *_: object) -> None:
        self.processor += processor_seconds(os.getpid()) - self._begun

    def time(self, call: Callable[[], object]) -> None:
        """Call, and keep the seconds."""
        begun = time.perf_counter()
        call()
        self.seconds.append(time.perf_counter() - begun)
