"""What `make bench-check` measures: one step of the way of a row, and what pyarrow alone takes for the same data.

A case makes its data in a folder, and returns our call and the reference. Both do the same every time, on one thread
where they have a choice, and for some hundredths of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from streaming_lsm import Envelope, EventFormat, LsmTable
from streaming_lsm.decode.decoder import Decoder
from streaming_lsm.format.table.file_names import WriteToken
from streaming_lsm.schema import COMMIT_SEQNO, META_COLUMNS, RECORD_KEY
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.instant import TIMELINE_FOLDER
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.write.buffer.dedup import FileGroupChanges
from streaming_lsm.write.buffer.record_buffer import RecordBuffer
from streaming_lsm.write.files.file_group_writer import FileGroupWriter
from streaming_lsm.write.plan import WritePlan
from tests.bench.documents import SCHEMA, documents
from tests.bench.reference.decode import read_documents
from tests.bench.reference.encode import write_rows
from tests.bench.reference.scan import read_by_file
from tests.bench.reference.sort import sorted_rows
from tests.bench.reference.timeline import list_folder
from tests.bench.workload import KEY, ORDERING, REPEATED, orders
from tests.support.plans import INSTANT, open_instant

MESSAGES, ROWS, KEYS, INSTANTS = 16_384, 131_072, 65_536, 1_000
LOGS, LOG_ROWS = 8, 16_384


@dataclass(frozen=True)
class Pair:
    """Two calls to compare: ours, and the reference."""

    ours: Callable[[], object]
    reference: Callable[[], object]


def decode_rows(folder: Path) -> Pair:
    """Kafka messages of JSON rows to events; the reference parses the same documents, without a check."""
    return _decode(EventFormat.JSON, SCHEMA)


def decode_changes(folder: Path) -> Pair:
    """Kafka messages of Debezium envelopes to events; the reference parses their ``after``."""
    return _decode(EventFormat.DEBEZIUM, pa.schema({"after": pa.struct(list(SCHEMA))}))


def _decode(kind: EventFormat, columns: pa.Schema) -> Pair:
    keys, values = zip(*documents(MESSAGES, KEYS, kind), strict=True)
    count_of = len(values)
    messages = pa.record_batch(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": pa.array(["orders"] * count_of),
            "partition": pa.array([0] * count_of, pa.int32()),
            "offset": pa.array(range(count_of), pa.int64()),
        }
    )
    envelope = Envelope(SCHEMA, (KEY,), ordering=(ORDERING,), format=kind)
    decoder = Decoder(envelope)
    if decoder.decode(messages).num_rows != count_of or read_documents(values, columns).num_rows != count_of:
        raise AssertionError("not every document was read")
    return Pair(lambda: decoder.decode(messages), lambda: read_documents(values, columns))


def buffer(folder: Path) -> Pair:
    """Events to sorted rows without repeats, by bucket; the reference sorts the rows by key."""
    plan, batches = _plan(folder, 8), orders(ROWS, KEYS, seed=1).to_batches(max_chunksize=ROWS // 8)
    if sum(block.rows.num_rows for block in _drained(plan, batches)) != len(
        set(orders(ROWS, KEYS, 1)[KEY].to_pylist())
    ):
        raise AssertionError("the buffer does not keep one row a key")
    return Pair(lambda: _drained(plan, batches), lambda: sorted_rows(batches, KEY))


def encode(folder: Path) -> Pair:
    """Sorted rows to a log file; the reference writes the same columns, those of the meta data included."""
    plan = open_instant(_plan(folder, 1).at(INSTANT))
    blocks = _drained(plan, orders(ROWS, 2 * ROWS, seed=1).to_batches())
    (first,) = FileGroupWriter(plan, WriteToken(0, 0, 0)).write(("", 0), blocks)
    with pq.ParquetFile(folder / first.path) as file:
        rows = file.read()
    plain = str(folder / "plain.parquet")
    dictionary = (*REPEATED, *(name for name in META_COLUMNS if name not in (RECORD_KEY, COMMIT_SEQNO)))
    attempts = count(1)

    def ours() -> None:
        writer = FileGroupWriter(plan, WriteToken(0, 0, next(attempts)))
        for _ in writer.write(("", 0), blocks):
            pass
        writer.discard()

    return Pair(ours, lambda: write_rows(rows, plain, dictionary))


def scan(folder: Path) -> Pair:
    """A snapshot of a bucket's base file and logs; the reference reads the files."""
    table = _table(folder, 1)
    table.bulk_insert(orders(ROWS, KEYS, seed=0))
    for number in range(1, LOGS + 1):
        table.upsert(orders(LOG_ROWS, KEYS, seed=number))
    paths = [str(folder / path) for found in table.file_slices() for path in found.paths]
    columns = [RECORD_KEY, *table.schema.names]
    return Pair(lambda: table.scan().to_arrow(), lambda: read_by_file(paths, columns, 1))


def timeline(folder: Path) -> Pair:
    """A folder of 1,000 completed instants to a timeline, with no name known; the reference lists the folder."""
    names = folder / TIMELINE_FOLDER
    names.mkdir(parents=True)
    for number in range(INSTANTS):
        requested, completed = (str(20261121101112000 + 1000 * number + later) for later in (0, 500))
        for name in (f"{requested}.deltacommit.requested", f"{requested}.deltacommit.inflight"):
            (names / name).touch()
        (names / f"{requested}_{completed}.deltacommit").touch()
    storage = LocalStorage(folder)
    if len(Timeline.load(storage).completed_writes) != INSTANTS:
        raise AssertionError("the timeline does not have every instant")
    return Pair(lambda: Timeline.load(storage), lambda: list_folder(str(names)))


CASES: Mapping[str, Callable[[Path], Pair]] = {
    "decode JSON rows": decode_rows,
    "decode Debezium": decode_changes,
    "sort and dedup": buffer,
    "encode a log": encode,
    "merge scan": scan,
    "load a timeline": timeline,
}
"""Cases by name, the key of the baseline."""


def _table(folder: Path, buckets: int) -> LsmTable:
    options = {
        "hoodie.table.name": "orders",
        "hoodie.datasource.write.recordkey.field": KEY,
        "hoodie.table.ordering.fields": ORDERING,
        "hoodie.bucket.index.num.buckets": buckets,
        "lsm.read.threads": 1,
    }
    return LsmTable.create(folder, orders(1, 1, seed=0).schema, options)


def _plan(folder: Path, buckets: int) -> WritePlan:
    table = _table(folder, buckets)
    with table.transaction() as transaction:
        return table.plan(transaction, "upsert")


def _drained(plan: WritePlan, batches: list[pa.RecordBatch]) -> list[FileGroupChanges]:
    held = RecordBuffer(plan)
    for batch in batches:
        held.append(batch)
    return [block for _, blocks in held.drain() for block in blocks]
