"""Texts of the page."""

from __future__ import annotations

INTRODUCTION = """# Beside other table formats

`make bench-peers` measures the figures of this page and writes the page; `QUICK=1` does so with less data,
within an hour on two cores. It makes an environment for each system, and goes on where it was stopped. The
results, one file for each system and workload, are in `build/bench/peers`.

A run is a process. It starts, writes warm-up batches to another table, then the measured ones to an empty
table. Its table is read back by the system's own readers and compared with the rows that must be there.
Systems take turns, and which one begins alternates. Figures are medians of the runs, with the lowest and
the highest; percentiles are those of the batches of all runs. Processor time is that of all processes of a
run. A plain append keeps every version of a row, so it is no upsert; it is measured for orientation."""

MACHINE = """{processor}, {cores} cores, {memory}, {system}, Python {python}. The load of the machine when a run began
was {low:.1f} to {high:.1f}; only ratios within this page mean anything. Form: {form}, {runs} of each."""

TRICKLE = """Rows that arrive during a batch make the next one, so a slow system has fewer and larger batches.
The age is the time from the end of a second until its rows are committed, of the oldest rows of a batch."""

READS = """A base of {base} rows, compacted, and logs (commits) of {log} rows over it. Seconds to read all rows and
columns, after one read that is not counted: by Spark as its own rows, and into an Arrow table. Cells: with {logs}
logs, and compacted. Old files stay, as nothing is cleaned."""

QUERIES = """The table of R with 20 logs over a compacted base of {base} rows, then compacted. Median seconds of {reads}
queries, each from its planning to the last row, which Spark has as its own; one more before them is not counted. The
figure of the incremental query is that of all rows of the last {last} batches."""

SETTINGS = """All: {cores} cores (`local[{cores}]`, as many shuffle partitions), a Java heap of {heap}, zstd
level 1, {buckets} buckets where there are buckets (Delta has none), {partitions} topic partitions, the same Java 17.
Where events of a key arrive out of order, the one with the highest ordering value wins in each system: by its
ordering or sequence field, or by a condition of the MERGE, whose source has the newest row of each key. No
services run beside the writes, but for the compactions of Paimon that is not write-only. Adaptive execution is
as each Spark has it, and off for this package, whose local session has it so. Late events are
never followed by the delete of their key: a MERGE keeps no tombstones, and would bring the row back, where
this package, Hudi and Paimon would not."""

WRITTEN_BY = {
    "lsm": "`LsmSink` in foreachBatch; Kafka messages as they are, with an `Envelope`",
    "lsm-table": "`LsmTable.upsert` of an Arrow table",
    "append": "`DataFrame.write.parquet`, zstd level 1, dictionaries only where values repeat; `from_json`",
    "hudi": "upsert, merge-on-read, bucket index, Parquet log blocks, no metadata table; deletes by "
    "`_hoodie_is_deleted`; `from_json`",
    "paimon": "append to a table with a primary key, `write-only=true`; deletes by `rowkind.field`; `from_json`",
    "paimon-compacting": "the same without `write-only`",
    "iceberg": "`MERGE INTO`, merge-on-read, format version 3, storage-partitioned join; `from_json`",
    "delta": "`MERGE INTO`, deletion vectors, the source not materialized; `from_json`; with Spark 4.1.4 its first "
    "checkpoint fails (`NoSuchMethodError`), so it runs on 4.1.0",
    "pypaimon": "`write_arrow` to a table with a primary key, in Python",
    "hudi-rs": "`LsmTable.upsert` with `hoodie.write.table.version=9`",
    "pypaimon-native": "the same with `write.native.enabled`, `commit.native.enabled`, `read.native.enabled`",
}
"""How each system writes, in the words of its options."""
