"""Real Hudi as a process: one Spark session that reads and writes tables on request.

Runs in the judge's venv, which has Spark 3.5 and not this package:

    python -m tests.conformance.hudi_process --bundle hudi.jar --folder scratch
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from tests.conformance.row_json import to_lines, to_rows
from tests.conformance.serve import Handler, claim_stdout, serve

Options = dict[str, str]


def read_options(query: str, begin: str | None, end: str | None, as_of: str | None) -> Options:
    """Hudi's options for a query type: snapshot, read_optimized, time_travel, incremental or cdc."""
    if query in ("snapshot", "read_optimized"):
        return {"hoodie.datasource.query.type": query}
    if query == "time_travel":
        return {"as.of.instant": str(as_of)}
    if query not in ("incremental", "cdc"):
        raise ValueError(f"no query type {query!r}")
    options = {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.read.begin.instanttime": str(begin)}
    if end is not None:
        options["hoodie.datasource.read.end.instanttime"] = end
    if query == "cdc":
        options["hoodie.datasource.query.incremental.format"] = "cdc"
    return options


class Tables:
    """The requests that a session can carry out."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def read(self, to: str, **query: Any) -> dict[str, object]:
        """Write a query's rows as JSON lines to the file `to`."""
        begun = time.monotonic()
        table = _collect(self._frame(**query))
        scanned = time.monotonic() - begun
        lines = to_lines(table)
        Path(to).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return {"rows": len(lines), "scan_seconds": round(scanned, 3)}

    def scan(self, **query: Any) -> dict[str, object]:
        """Compute all of a query's rows, and keep none."""
        begun = time.monotonic()
        self._frame(**query).write.format("noop").mode("overwrite").save()
        return {"scan_seconds": round(time.monotonic() - begun, 3)}

    def write(
        self, path: str, operation: str, rows: str, options: Options, schema: str | None = None, mode: str = "append"
    ) -> None:
        """Write the rows of a Parquet file, or of JSON lines with a `schema`, by one of Hudi's operations."""
        reader = self._session.read
        if schema is None:
            # Arrow writes no word about the calendar; old dates would otherwise be refused.
            frame = reader.option("datetimeRebaseMode", "CORRECTED").parquet(rows)
        else:
            frame = reader.schema(schema).option("mode", "FAILFAST").json(rows)
        chosen = {"hoodie.datasource.write.operation": operation, **options}
        frame.write.format("hudi").options(**chosen).mode(mode).save(path)

    def sql(self, text: str, path: str | None = None, options: Options | None = None) -> list[dict[str, Any]]:
        """Run a statement under Hudi's `options`, `{table}` in it standing for the table at `path`."""
        with self._options(options or {}), self._registered(path) as name:
            return to_rows(_collect(self._session.sql(text.replace("{table}", name))))

    @contextmanager
    def _options(self, options: Options) -> Iterator[None]:
        """Set options for SQL, which takes them from the session only."""
        for key, value in options.items():
            self._session.conf.set(key, value)
        try:
            yield
        finally:
            for key in options:
                self._session.conf.unset(key)

    @contextmanager
    def _registered(self, path: str | None) -> Iterator[str]:
        """The name of a table, for one statement: the catalog would go on with the schema that it saw first."""
        if path is None:
            yield "{table}"
            return
        name = "judged_" + hashlib.sha256(path.encode()).hexdigest()[:12]
        self._session.sql(f"CREATE TABLE {name} USING hudi LOCATION '{path}'")
        try:
            yield name
        finally:
            self._session.sql(f"DROP TABLE IF EXISTS {name}")

    def _frame(
        self,
        path: str,
        query: str,
        begin: str | None = None,
        end: str | None = None,
        as_of: str | None = None,
        where: str | None = None,
        options: Options | None = None,
    ) -> DataFrame:
        chosen = {**read_options(query, begin, end, as_of), **(options or {})}
        frame = self._session.read.format("hudi").options(**chosen).load(path)
        return frame if where is None else frame.where(where)


def _collect(frame: DataFrame) -> pa.Table:
    # Arrow carries every type as it is, and 50,000 rows in a second; Spark 3.5 has no public call for it.
    batches = cast(Any, frame)._collect_as_arrow()
    return pa.Table.from_batches(batches) if batches else pa.table({})


def describe(error: BaseException) -> tuple[str, str]:
    """Class and message of an error; for one of Java's, those of it and of what caused it."""
    cause = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if cause is None:
        return type(error).__name__, str(error)
    chain: list[tuple[str, str]] = []
    while cause is not None and len(chain) < 8:
        chain.append((str(cause.getClass().getName()), str(cause.getMessage())))
        cause = cause.getCause()
    return chain[0][0], "\ncaused by ".join([chain[0][1], *(f"{name}: {text}" for name, text in chain[1:])])


def start_session(bundle: str, folder: Path, java_options: str, settings: Options) -> SparkSession:
    """The session, with what Hudi asks for."""
    chosen = {
        "spark.driver.memory": "3g",
        "spark.driver.extraClassPath": bundle,
        "spark.driver.extraJavaOptions": java_options,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        # Lists that Hudi writes by default cannot hold nulls: its write fails.
        "spark.hadoop.parquet.avro.write-old-list-structure": "false",
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        **settings,
    }
    builder = SparkSession.builder.appName("judge").master("local[2]")
    for key, value in chosen.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    # It repeats one warning for every file of an older table, and the log's end has to show what matters.
    log4j = cast(Any, session.sparkContext._jvm).org.apache.logging.log4j
    log4j.core.config.Configurator.setLevel("org.apache.hudi.common.util.ConfigUtils", log4j.Level.ERROR)
    return session


def main() -> None:
    """Start the session and answer requests."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundle", required=True, help="jar of the Hudi bundle")
    parser.add_argument("--folder", required=True, type=Path, help="for Spark's own files")
    parser.add_argument("--java-options", default="")
    parser.add_argument("--setting", action="append", default=[], metavar="KEY=VALUE", help="of the session")
    given = parser.parse_args()
    answers = claim_stdout()
    settings = dict(setting.split("=", 1) for setting in given.setting)
    session = start_session(given.bundle, given.folder, given.java_options, settings)
    tables = Tables(session)
    handlers: dict[str, Handler] = {"read": tables.read, "scan": tables.scan, "write": tables.write, "sql": tables.sql}
    serve(handlers, describe, answers)
    session.stop()


if __name__ == "__main__":
    main()
