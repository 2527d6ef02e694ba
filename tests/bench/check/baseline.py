"""Recorded ratios, and what a new one means beside them."""

from __future__ import annotations

import json
import platform
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

LIMIT = 0.15
"""By so much a ratio may exceed the recorded one."""


@dataclass(frozen=True)
class Baseline:
    """Ratios of our time to the reference's, by case, and the machine that they were recorded on."""

    machine: Mapping[str, str]
    ratios: Mapping[str, float]

    @classmethod
    def load(cls, path: Path) -> Baseline:
        """Read the file that `save` wrote."""
        found = json.loads(path.read_text(encoding="utf-8"))
        return cls(found["machine"], {name: float(ratio) for name, ratio in found["ratios"].items()})

    def save(self, path: Path) -> None:
        """Write a file to commit."""
        ratios = {name: round(ratio, 3) for name, ratio in self.ratios.items()}
        text = json.dumps({"machine": dict(self.machine), "ratios": ratios}, indent=2)
        path.write_text(text + "\n", encoding="utf-8")

    def verdict(self, name: str, ratio: float) -> Verdict:
        """Compare a new ratio of a case."""
        return Verdict(name, ratio, self.ratios.get(name))

    def unknown(self, cases: Collection[str]) -> list[str]:
        """Recorded ratios whose case does not exist any more."""
        return sorted(set(self.ratios).difference(cases))


@dataclass(frozen=True)
class Verdict:
    """A new ratio of a case, and the recorded one; None if there is none."""

    name: str
    ratio: float
    recorded: float | None

    @property
    def change(self) -> float:
        """Share by which the ratio exceeds the recorded one; negative if it is faster now."""
        return 0.0 if self.recorded is None else self.ratio / self.recorded - 1

    @property
    def red(self) -> bool:
        """Whether the case is slower by more than `LIMIT`, or was not recorded."""
        return self.recorded is None or self.change > LIMIT

    @property
    def words(self) -> str:
        """The verdict for people."""
        if self.recorded is None:
            return "NOT RECORDED"
        if self.red:
            return f"SLOWER by {self.change:.0%}"
        return f"faster by {-self.change:.0%}: record it" if self.change < -LIMIT else "ok"


def this_machine() -> dict[str, str]:
    """What ratios depend on besides the code: the processor, what both sides run on, and where the data lies."""
    return {
        "processor": _processor(),
        "python": ".".join(platform.python_version_tuple()[:2]),
        "pyarrow": pa.__version__,
        "numpy": np.__version__,
        "file system": _file_system(Path(tempfile.gettempdir()).resolve()),
    }


def _processor() -> str:
    named = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return named[0] if named else platform.machine()


def _file_system(folder: Path) -> str:
    """Type of the file system of a folder: that of the longest mount point above it."""
    mounts = [line.split() for line in _lines("/proc/mounts")]
    above = [(len(point), kind) for _, point, kind, *_ in mounts if folder.is_relative_to(point)]
    return max(above, default=(0, "unknown"))[1]


def _lines(path: str) -> list[str]:
    """Lines of a file of the system; none where there is no such file."""
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
