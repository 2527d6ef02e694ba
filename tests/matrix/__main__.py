"""Run the integration tests of Spark and Kafka on each version of PySpark and Python: ``python -m tests.matrix``.

MATRIX="3.5-py311 4.0-py312" chooses cells. A cell that passed with the same code and versions is not run again; a cell
without an interpreter is told as such. Exit status: 0 when all chosen cells passed or had no interpreter, 1 otherwise.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from streaming_lsm.errors import ConfigError
from tests.matrix.cells import OLDEST, PYTHONS, ROOT, SPARKS, Cell, chosen
from tests.matrix.environment import FOLDER, find_python, prepare

STREAM = "tests/integration/test_file_stream.py"
KAFKA = "tests/integration/test_kafka_job.py"
TESTS = (
    f"{KAFKA}::test_job_writes_what_the_events_say_and_goes_on_from_its_checkpoint_on_a_cluster",
    f"{KAFKA}::test_bad_event_stops_the_job_by_name_and_what_was_committed_stays",
    f"{STREAM}::test_a_stream_goes_on_from_its_checkpoint",
    f"{STREAM}::test_what_does_not_fit_the_table_is_refused_by_name",
    f"{STREAM}::test_an_error_of_a_task_arrives_as_itself_in_one_line",
    f"{STREAM}::test_spark_reads_as_of_an_instant_and_with_meta_columns",
    f"{STREAM}::test_a_stream_writes_a_table_for_the_readers_of_today",
    "tests/integration/test_kafka_topics.py::test_topics_have_tables_formats_numbers_and_replays_of_their_own",
    "tests/integration/test_exchange.py",
    "tests/integration/test_shuffle_partitions.py",
    "tests/integration/test_file_groups_of_tasks.py",
    "tests/integration/test_spark_engine.py",
    "tests/integration/test_reading_by_spark.py",
    "tests/integration/test_batch_numbers.py",
)
_SECONDS = 3600


@dataclass(frozen=True)
class Outcome:
    """What came of a cell.

    Attributes:
        status: ``passed``, ``failed``, ``not installed`` or ``no interpreter``.
        counts: the last line of pytest, or the reason.
        seconds: duration of the tests.
        digest: of the code that ran.
    """

    status: str
    counts: str
    seconds: int
    digest: str


def main() -> int:
    """Run the chosen cells and print the table; returns the exit status."""
    try:
        cells = chosen(os.environ.get("MATRIX", ""))
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    # The tests of a cell end with this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    outcomes = {}
    for cell in cells:
        outcomes[cell] = _outcome(cell)
        print(f"{cell.name}: {outcomes[cell].status}, {outcomes[cell].counts}", flush=True)
    print(table(outcomes))
    return int(any(outcome.status not in ("passed", "no interpreter") for outcome in outcomes.values()))


def _outcome(cell: Cell) -> Outcome:
    digest, kept = code_digest(cell), FOLDER / f"{cell.name}.json"
    if kept.exists():
        before = Outcome(**json.loads(kept.read_text(encoding="utf-8")))
        if before.status == "passed" and before.digest == digest:
            return before
    found = _run(cell, digest)
    kept.write_text(json.dumps(asdict(found)), encoding="utf-8")
    return found


def _run(cell: Cell, digest: str) -> Outcome:
    python = find_python(cell.python)
    wanted = f"python{cell.python[0]}.{cell.python[1]}"
    if python is None:
        return Outcome("no interpreter", f"no {wanted} on PATH: set MATRIX_PYTHONS=/path/of/{wanted}", 0, digest)
    try:
        program = prepare(cell, python)
    except ConfigError as error:
        return Outcome("not installed", str(error), 0, digest)
    begun = time.monotonic()
    # Deprecations that an older PySpark meets are not ours to mend.
    command = [str(program), "-m", "pytest", "-q", "-W", "ignore", "--durations", "6", "-p", "no:cacheprovider", *TESTS]
    # All cases, with those that `make test` leaves out.
    environment = {**os.environ, "LSM_ALL_FAULTS": "1"}
    with (FOLDER / f"{cell.name}.log").open("w", encoding="utf-8") as log:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT, timeout=_SECONDS, check=False
        )
    seconds = round(time.monotonic() - begun)
    last = (FOLDER / f"{cell.name}.log").read_text(encoding="utf-8", errors="replace").splitlines()[-1:]
    counts = re.sub(r" in .*", f" in {seconds} s", "".join(last))
    if done.returncode:
        return Outcome("failed", f"{counts}, see {log.name}", seconds, digest)
    return Outcome("passed", counts, seconds, digest)


def code_digest(cell: Cell) -> str:
    """Digest of what a cell's outcome depends on: its versions, and the code of the package, jobs and tests."""
    found = hashlib.sha256(f"{cell.constraints()}{TESTS}".encode())
    for folder in ("streaming_lsm", "jobs", "conf", "tests/integration", "tests/support", "tests/oracle"):
        for file in sorted(Path(ROOT, folder).rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                found.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return found.hexdigest()


def table(outcomes: dict[Cell, Outcome]) -> str:
    """The outcomes as a table: a row for each version of Spark, a column for each of Python."""
    lines = ["| PySpark | " + " | ".join(f"Python {major}.{minor}" for major, minor in PYTHONS) + " |"]
    lines.append("| --- " * (len(PYTHONS) + 1) + "|")
    for spark in (*SPARKS, OLDEST):
        row = {cell.python: each for cell, each in outcomes.items() if (OLDEST if cell.oldest else cell.spark) == spark}
        name = f"{spark} ({Cell(spark, PYTHONS[0], spark == OLDEST).pyspark})"
        if row:
            texts = [f"{row[python].status}" if python in row else "-" for python in PYTHONS]
            lines.append(f"| {name} | " + " | ".join(texts) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
