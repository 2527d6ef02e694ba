"""Files of results, one for each pair of workload and system."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.bench.peers.sizes import Sizes

Answer = dict[str, Any]


@dataclass
class Pair:
    """The runs of a workload with a system.

    Attributes:
        workload: letter of the workload.
        system: name of the system.
        sizes: what the runs wrote.
        runs: what each run measured.
        error: class and message of the failure of a run; the pair has failed then, and its numbers do not count.
    """

    workload: str
    system: str
    sizes: dict[str, int]
    runs: list[Answer] = field(default_factory=list)
    error: str = ""

    @property
    def finished(self) -> bool:
        """Whether all runs are there."""
        return not self.error and len(self.runs) >= self.sizes["runs"]


class Results:
    """All pairs of a folder that were measured with the same sizes."""

    def __init__(self, folder: Path, sizes: Sizes) -> None:
        """Name the folder; it is created when the first pair is saved."""
        self._folder = folder
        self._sizes = sizes

    def load(self, workload: str, system: str) -> Pair:
        """The pair, with the runs so far; those of other sizes are not taken."""
        path = self._path(workload, system)
        if path.exists():
            pair = Pair(**json.loads(path.read_text(encoding="utf-8")))
            if self._sizes.fits(workload, pair.sizes):
                return pair
        return Pair(workload, system, self._sizes.as_json())

    def save(self, pair: Pair) -> None:
        """Replace the pair's file."""
        path = self._path(pair.workload, pair.system)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".new")
        draft.write_text(json.dumps(asdict(pair), indent=1) + "\n", encoding="utf-8")
        draft.replace(path)

    def _path(self, workload: str, system: str) -> Path:
        return self._folder / f"{workload}-{system}.json"


def wrong_digests(answer: Answer, expected: str) -> str:
    """Tell which readers gave other rows than those that must be there, or that none gave any; empty when all is right.

    A reader without Spark that failed beside one of Spark that did not, is told by the page and is not wrong.
    """
    read = [(reader, each) for reader, digests in answer.get("digests", {}).items() for each in digests]
    given = [(reader, each) for reader, each in read if not _is_failure(each)]
    if not given:
        return "final state was read by no reader"
    found = [f"{reader}: {each[:30]}" for reader, each in given if each != expected]
    return f"final state differs from {expected[:30]}: {'; '.join(found)}" if found else ""


def _is_failure(digest: str) -> bool:
    return not digest.partition(":")[0].isdigit()
