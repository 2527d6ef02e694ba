"""hudi-rs as a process that reads tables on request; runs in the judge's venv.

python -m tests.conformance.hudi_rs_process
"""

from __future__ import annotations

import pyarrow as pa
from hudi import HudiQueryType, HudiReadOptions, HudiTableBuilder  # type: ignore[import-not-found]

from tests.conformance.serve import claim_stdout, serve


def read(
    path: str, to: str, query: str, begin: str | None = None, end: str | None = None, as_of: str | None = None
) -> dict[str, int]:
    """Write a query's rows to the Arrow file `to`."""
    table = HudiTableBuilder.from_base_uri(path).build()
    batches = table.read(read_options(query, begin, end, as_of))
    rows = pa.Table.from_batches(batches) if batches else pa.table({})
    with pa.OSFile(to, "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    return {"rows": rows.num_rows}


def read_options(query: str, begin: str | None, end: str | None, as_of: str | None) -> HudiReadOptions:
    """hudi-rs's options for a query type: snapshot, read_optimized, time_travel or incremental."""
    options = HudiReadOptions()
    if query == "read_optimized":
        return options.with_hudi_option("hoodie.read.use.read_optimized.mode", "true")
    if query == "time_travel":
        return options.with_as_of_timestamp(str(as_of))
    if query == "incremental":
        options = options.with_query_type(HudiQueryType.Incremental).with_start_timestamp(str(begin))
        return options if end is None else options.with_end_timestamp(end)
    if query != "snapshot":
        raise ValueError(f"no query type {query!r}")
    return options


def describe(error: BaseException) -> tuple[str, str]:
    """Class and message of an error."""
    return type(error).__name__, str(error)


if __name__ == "__main__":
    serve({"read": read}, describe, claim_stdout())
