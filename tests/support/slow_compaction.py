"""``jobs/compact.py`` whose operations take their time: ``python -m tests.support.slow_compaction SECONDS …``.

Each operation prints a line when it begins, and takes so many seconds more.
"""

from __future__ import annotations

import runpy
import sys
import time
from pathlib import Path

from streaming_lsm.file_group.file_system_view import FileSlice
from streaming_lsm.format.actions.commit import WriteStat
from streaming_lsm.services.compaction.task import CompactionTask

_call = CompactionTask.__call__


def _slowly(task: CompactionTask, operation: tuple[int, FileSlice]) -> WriteStat:
    print(f"operation {operation[0]}", flush=True)
    time.sleep(float(sys.argv[1]))
    return _call(task, operation)


if __name__ == "__main__":
    CompactionTask.__call__ = _slowly  # type: ignore[method-assign]
    job = runpy.run_path(str(Path(__file__).parents[2] / "jobs" / "compact.py"))
    sys.exit(job["main"](["--no-schedule", *sys.argv[2:]]))
