"""Processor time of a process and all that it started."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds(process: int) -> float:
    """Add up the processor time of a process, its children that ended, and its descendants that live."""
    parents, ticks = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it ended meanwhile
                continue
            number = int(folder.name)
            parents[number], ticks[number] = int(fields[1]), sum(map(int, fields[11:15]))
    found, members = 0, [process]
    while members:
        member = members.pop()
        found += ticks.get(member, 0)
        members += [child for child, parent in parents.items() if parent == member]
    return found / _TICKS
