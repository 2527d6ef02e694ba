"""Real Hudi and hudi-rs, as the tests call them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import pyarrow as pa
import pyarrow.parquet as pq

from tests.conformance.environment import ROOT, Environment
from tests.conformance.worker import Worker

Query = Literal["snapshot", "read_optimized", "time_travel", "incremental", "cdc"]
Operation = Literal["upsert", "insert", "bulk_insert", "delete", "insert_overwrite", "insert_overwrite_table"]
Options = Mapping[str, str]
_TIMEOUT = 180.0

_QUICK_START = "-XX:TieredStopAtLevel=1"
"""Only the first compiler: tests are short, and this halves their time. Measurements go without."""

_JAVA = "-Djol.skipHotspotSAAttach=true -Djdk.attach.allowAttachSelf=true"
"""Hudi measures objects with a library that otherwise tries for seconds to attach to its own process."""

_FOREIGN = ("SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR", "HUDI_CONF_DIR", "PYTHONHOME", "PYSPARK_SUBMIT_ARGS")


class _Driven:
    """What the two judges have in common: a worker and a folder for what passes between the processes."""

    _worker: Worker
    _scratch: tempfile.TemporaryDirectory[str]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def restart(self) -> None:
        """End the process; the next request starts another one, which has nothing cached."""
        self._worker.stop()

    def close(self) -> None:
        """End the process and remove its files."""
        self._worker.stop()
        self._scratch.cleanup()

    def _file(self, name: str) -> Path:
        return Path(self._scratch.name) / name


class Hudi(_Driven):
    """Hudi 1.2 on Spark 3.5 in a process of its own, which starts at the first request.

    Every method that asks it something raises `Refused` when Hudi fails, and `JudgeLost` when the
    process does not answer within `timeout` seconds or ends; the next request starts it anew.
    """

    def __init__(
        self,
        environment: Environment,
        log: Path,
        *,
        settings: Options | None = None,
        quick_start: bool = True,
        timeout: float = _TIMEOUT,
    ) -> None:
        """Make it ready to start.

        Args:
            environment: what it runs on.
            log: file for its log.
            settings: of the Spark session, over its own.
            quick_start: start fast rather than run fast; False for measurements.
            timeout: seconds for one request.
        """
        self._scratch = tempfile.TemporaryDirectory(prefix="judge-")
        self._timeout = timeout
        java_options = f"{_JAVA} {_QUICK_START}" if quick_start else _JAVA
        command = [
            *_python(environment, "hudi_process"), "--bundle", str(environment.bundle),
            "--folder", self._scratch.name, f"--java-options={java_options}",
            *(f"--setting={key}={value}" for key, value in (settings or {}).items()),
        ]  # fmt: skip
        self._worker = Worker(command, folder=ROOT, environment=_variables(environment), log=log)

    def read(self, path: str | Path, query: Query = "snapshot", **how: Any) -> list[str]:
        """A query's rows as sorted JSON lines, the _hoodie_* columns included.

        Args:
            path: the table.
            query: query type.
            how: begin, end (incremental, cdc: begin exclusive, end inclusive; completion times from
                table version 8 on, instants before), as_of (time_travel), where (an SQL condition), options (Hudi's).
        """
        to = self._file("rows.jsonl")
        self._ask("read", path=str(path), query=query, to=str(to), **how)
        # Not splitlines(): a value may hold other characters that it takes for line ends.
        return to.read_text(encoding="utf-8").split("\n")[:-1]

    def scan_seconds(self, path: str | Path, query: Query = "snapshot", **how: Any) -> float:
        """Seconds in which Hudi computes all rows of a query, as in `read`, and keeps none."""
        seconds: float = self._ask("scan", path=str(path), query=query, **how)["scan_seconds"]
        return seconds

    def write(
        self,
        path: str | Path,
        operation: Operation,
        rows: pa.Table | Path,
        options: Options,
        *,
        schema: str | None = None,
        mode: Literal["append", "overwrite"] = "append",
    ) -> None:
        """Write rows.

        Args:
            path: the table; made when it is not there.
            operation: Hudi's write operation.
            rows: a table, a Parquet file, or with `schema` a file of JSON lines.
            options: Hudi's. A table states its keys and ordering fields, but neither its index, nor its number
                of buckets, nor whether to have a metadata table: left out, Hudi's defaults act on it.
            schema: columns as in SQL's DDL, for JSON lines.
            mode: Spark's save mode.
        """
        if isinstance(rows, pa.Table):
            file = self._file("rows.parquet")
            pq.write_table(rows, file)
        else:
            file = rows
        how = {"options": dict(options), "schema": schema, "mode": mode}
        self._ask("write", path=str(path), operation=operation, rows=str(file), **how)

    def sql(self, text: str, path: str | Path | None = None, options: Options | None = None) -> list[dict[str, Any]]:
        """Rows of a statement, run under Hudi's `options`; `{table}` in it is the table at `path`."""
        rows: list[dict[str, Any]] = self._ask(
            "sql", text=text, path=None if path is None else str(path), options=dict(options or {})
        )
        return rows

    def call(
        self, procedure: str, path: str | Path, options: Options | None = None, **arguments: str | int | bool
    ) -> list[dict[str, Any]]:
        """Rows of one of Hudi's SQL procedures, run on the table at `path` under Hudi's `options`.

        Without ``hoodie.metadata.enable=false`` among the options, whatever writes makes a metadata table.
        """
        listed = "".join(f", {name} => {_literal(value)}" for name, value in arguments.items())
        return self.sql(f"CALL {procedure}(table => '{{table}}'{listed})", path, options)

    def schedule_compaction(self, path: str | Path, options: Options | None = None) -> list[dict[str, Any]]:
        """Plan a compaction of whatever there is to compact; rows: timestamp, operation_size, state."""
        chosen = {"hoodie.compact.inline.max.delta.commits": "1", **(options or {})}
        return self.call("run_compaction", path, chosen, op="schedule")

    def compact(self, path: str | Path, options: Options | None = None) -> list[dict[str, Any]]:
        """Plan a compaction, and run all planned ones; rows: timestamp, operation_size, state."""
        self.schedule_compaction(path, options)
        return self.call("run_compaction", path, options, op="run")

    def clean(self, path: str | Path, retain_commits: int = 1, options: Options | None = None) -> list[dict[str, Any]]:
        """Remove the files that only commits before the last `retain_commits` need; no row when there is none."""
        chosen = {"hoodie.clean.trigger.max.commits": "1", **(options or {})}
        return self.call("run_clean", path, chosen, retain_commits=retain_commits)

    def archive(self, path: str | Path, min_commits: int, max_commits: int, *, metadata: bool = True) -> None:
        """Archive until `min_commits` are left, when there are more than `max_commits`.

        Hudi archives nothing that a compaction still to come has to know, of this table or of its metadata table.

        Args:
            path: the table.
            min_commits: how many commits to leave.
            max_commits: how many may lie there before any is archived.
            metadata: whether it has a metadata table.
        """
        self.call(
            "archive_commits", path, min_commits=min_commits, max_commits=max_commits, retain_commits=1,
            enable_metadata=metadata,
        )  # fmt: skip

    def rollback(self, path: str | Path, instant: str, options: Options | None = None) -> None:
        """Undo the newest write, whose requested time is `instant`."""
        self.call("rollback_to_instant", path, options, instant_time=instant)

    def savepoint(self, path: str | Path, instant: str, options: Options | None = None) -> None:
        """Keep the state at the write whose requested time is `instant`."""
        self.call("create_savepoint", path, options, commit_time=instant)

    def restore(self, path: str | Path, instant: str, options: Options | None = None) -> None:
        """Go back to a savepoint."""
        self.call("rollback_to_savepoint", path, options, instant_time=instant)

    def _ask(self, do: str, **arguments: object) -> Any:
        return self._worker.ask({"do": do, **arguments}, self._timeout)


class HudiRs(_Driven):
    """hudi-rs in a process of its own; errors as for `Hudi`."""

    def __init__(self, environment: Environment, log: Path, *, timeout: float = 60) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="judge-rs-")
        self._timeout = timeout
        command = _python(environment, "hudi_rs_process")
        self._worker = Worker(command, folder=ROOT, environment=_variables(environment), log=log)

    def read(
        self,
        path: str | Path,
        query: Query = "snapshot",
        *,
        begin: str | None = None,
        end: str | None = None,
        as_of: str | None = None,
    ) -> pa.Table:
        """A query's rows, in no order; the arguments are those of `Hudi.read`, and cdc it does not have."""
        to = self._file("rows.arrow")
        request = {"do": "read", "path": str(path), "to": str(to), "query": query}
        self._worker.ask({**request, "begin": begin, "end": end, "as_of": as_of}, self._timeout)
        with pa.OSFile(str(to), "rb") as source:
            return pa.ipc.open_file(source).read_all()


def read_with_hudi_rs(environment: Environment, path: str | Path, log: Path) -> pa.Table:
    """The snapshot of one table by hudi-rs, in a process for this call only."""
    with HudiRs(environment, log) as reader:
        return reader.read(path)


def _python(environment: Environment, module: str) -> list[str]:
    return [str(environment.python), "-m", f"tests.conformance.{module}"]


def _variables(environment: Environment) -> dict[str, str]:
    """The variables of this process, less those that would point Spark or Python elsewhere."""
    own = {name: value for name, value in os.environ.items() if name not in _FOREIGN}
    return {
        **own,
        "JAVA_HOME": str(environment.java.home),
        "PYSPARK_PYTHON": str(environment.python),
        "PYSPARK_DRIVER_PYTHON": str(environment.python),
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def _literal(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "\\'") + "'"
