"""The machine that the figures are of."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def machine() -> dict[str, str]:
    """Processor, cores, memory, system and Python."""
    names = [line for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    memory = [line for line in _lines("/proc/meminfo") if line.startswith("MemTotal")]
    return {
        "processor": names[0].partition(":")[2].strip() if names else platform.processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{int(memory[0].split()[1]) / 2**20:.0f} GiB" if memory else "",
        "system": platform.system(),
        "python": platform.python_version(),
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
