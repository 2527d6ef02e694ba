"""Measure the systems: ``python -m tests.bench.peers [--form quick] [--workloads SK] [system ...]``.

A pair that is finished is not measured again without ``--again``; one that failed is. In the end the page is rendered
with ``--page``. Exit status: 0 when all pairs are measured, with the right rows in the end; 1 otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from streaming_lsm.errors import LsmError
from tests.bench.peers.environment import Environment, prepare
from tests.bench.peers.inputs import topics, write_files
from tests.bench.peers.machine import machine
from tests.bench.peers.page import write_page
from tests.bench.peers.results import Pair, Results, wrong_digests
from tests.bench.peers.sizes import FORMS, Sizes
from tests.bench.peers.systems import CHANGES, KAFKA, SYSTEMS, WORKLOADS, System
from tests.conformance.environment import ROOT
from tests.conformance.worker import JudgeLost, Refused, Worker

FOLDER = ROOT / "build" / "bench" / "peers"
PAGE = ROOT / "docs" / "peers.md"
_RUN_SECONDS = 1800.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is asked for and not there yet; returns the exit status."""
    given = _parsed(arguments)
    # The processes of a run end with this one.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sizes = FORMS[given.form]
    results = Results(given.folder / given.form, sizes)
    chosen = [system for system in SYSTEMS if not given.systems or system.name in given.systems]
    pairs = [
        results.load(letter, system.name)
        for letter in given.workloads
        for system in chosen
        if letter in system.workloads
    ]
    for pair in pairs:
        if given.again or pair.error:
            pair.runs, pair.error = [], ""
    if not given.render:
        _measure_all([pair for pair in pairs if not pair.finished], results, sizes, given)
    if given.page:
        write_page(results, sizes, given.form, given.page)
        say(f"rendered {given.page}")
    failed = [f"{pair.workload} {pair.system}" for pair in pairs if not pair.finished]
    say(
        f"{len(pairs) - len(failed)} of {len(pairs)} pairs measured" + (f"; not: {', '.join(failed)}" if failed else "")
    )
    return int(bool(failed))


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.peers", description=__doc__)
    names = [system.name for system in SYSTEMS]
    parser.add_argument("systems", nargs="*", metavar="system", help=f"one of {', '.join(names)}; all if none is named")
    parser.add_argument("--workloads", default="".join(WORKLOADS), help=f"letters of {''.join(WORKLOADS)}")
    parser.add_argument("--form", choices=FORMS, default="full", help="how much is written")
    parser.add_argument("--again", action="store_true", help="measure finished pairs again")
    parser.add_argument("--render", action="store_true", help="measure nothing")
    parser.add_argument("--page", type=Path, help="render this page, and the plot beside it")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of results, environments and tables")
    given = parser.parse_args(arguments)
    wrong = sorted({*given.systems}.difference(names)) + sorted({*given.workloads}.difference(WORKLOADS))
    if wrong:
        parser.error(f"there is no {wrong[0]!r}; systems: {', '.join(names)}; workloads: {''.join(WORKLOADS)}")
    given.folder = given.folder.absolute()
    return given


def say(text: str) -> None:
    """Print a line of progress."""
    print(f"peers {time.strftime('%H:%M:%S')}: {text}", flush=True)


def _measure_all(pairs: list[Pair], results: Results, sizes: Sizes, given: argparse.Namespace) -> None:
    """Measure pairs, workload by workload, in runs that take turns; which system begins a turn alternates."""
    if not pairs:
        return
    by_name = {system.name: system for system in SYSTEMS}
    with ExitStack() as stack:
        inputs = given.folder / "inputs" / given.form
        expected = write_files(inputs, sizes)
        servers = ""
        if any(pair.workload in (KAFKA, CHANGES) for pair in pairs):
            servers, digests = stack.enter_context(topics(given.folder / "broker", sizes, say))
            expected |= digests
        environments: dict[str, Environment] = {}
        for letter, run, pair in turns(pairs, sizes.runs):
            system = by_name[pair.system]
            begun = time.monotonic()
            say(f"{letter} {system.name}, run {run + 1} of {sizes.runs}")
            try:
                if system.name not in environments:
                    environments[system.name] = prepare(system, given.folder / "environments", say)
                answer = _run(system, environments[system.name], letter, sizes, inputs, servers, given.folder)
                pair.error = wrong_digests(answer, expected[letter]) if system.keeps else ""
                pair.runs.append(answer)
            except (LsmError, Refused, JudgeLost) as error:
                pair.error = f"{type(error).__name__}: {str(error)[:2000]}"
            results.save(pair)
            taken = f"{time.monotonic() - begun:.0f} s"
            say(f"{letter} {system.name}: " + (f"FAILED in {taken}: {pair.error[:600]}" if pair.error else taken))


def turns(pairs: Sequence[Pair], runs: int) -> Iterator[tuple[str, int, Pair]]:
    """Yield workload, number of the run and pair of each missing run, of pairs that have not failed meanwhile."""
    for letter in dict.fromkeys(pair.workload for pair in pairs):
        chosen = [pair for pair in pairs if pair.workload == letter]
        for run in range(runs):
            for pair in chosen if run % 2 == 0 else reversed(chosen):
                if len(pair.runs) <= run and not pair.error:
                    yield letter, run, pair


def _run(
    system: System, environment: Environment, letter: str, sizes: Sizes, inputs: Path, servers: str, folder: Path
) -> dict[str, Any]:
    """What one process measured.

    Raises:
        Refused: the system failed.
        JudgeLost: the process ended, or took too long.
    """
    scratch = folder / "tables"
    shutil.rmtree(scratch, ignore_errors=True)
    log = folder / "logs" / f"{letter}-{system.name}.log"
    with contextlib.suppress(FileNotFoundError):
        log.unlink()
    command = [str(environment.python), "-m", "tests.bench.peers.worker"]
    worker = Worker(command, folder=ROOT, environment=environment.variables(), log=log)
    request = {
        "do": "measure", "system": system.name, "adapter": system.adapter, "mode": system.mode, "keeps": system.keeps,
        "workload": letter, "sizes": sizes.as_json(), "jars": [str(jar) for jar in environment.jars],
        "inputs": str(inputs), "servers": servers, "folder": str(scratch),
    }  # fmt: skip
    try:
        load = os.getloadavg()[0]
        answer: dict[str, Any] = worker.ask(request, _RUN_SECONDS)
        return {**answer, "load": load, "machine": machine()}
    finally:
        worker.stop()
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
