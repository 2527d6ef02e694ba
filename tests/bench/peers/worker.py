"""The process of one run: ``python -m tests.bench.peers.worker``, which answers one request on its standard input."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path
from typing import Any

from tests.bench.peers import measures  # noqa: F401 - notes when the process began
from tests.conformance.serve import claim_stdout, serve


def measure(
    system: str,
    adapter: str,
    mode: str,
    keeps: bool,
    workload: str,
    sizes: dict[str, int],
    jars: list[str],
    inputs: str,
    servers: str,
    folder: str,
) -> dict[str, Any]:
    """Do a workload with a system; all files of it are below `folder`, which is deleted in the end."""
    from tests.bench.peers.adapters.base import OpenSystem, Place
    from tests.bench.peers.sizes import Sizes
    from tests.bench.peers.workloads import Run

    place = Place(Path(folder), tuple(jars), mode)
    place.folder.mkdir(parents=True)
    opened: OpenSystem = importlib.import_module(f"tests.bench.peers.adapters.{adapter}").open_system(place)
    try:
        run = Run(opened, Sizes(**sizes), Path(inputs), servers, place.folder, keeps)
        return {**run.measure(workload), "versions": opened.versions}
    finally:
        opened.close()
        shutil.rmtree(place.folder, ignore_errors=True)


def describe(error: BaseException) -> tuple[str, str]:
    """Class and message of an error."""
    return type(error).__name__, str(error)


if __name__ == "__main__":
    serve({"measure": measure}, describe, claim_stdout())
