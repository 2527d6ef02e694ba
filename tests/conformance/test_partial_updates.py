"""Partial updates: Hudi and this package write to a table in turn, and both see the rows of a model."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from tests.conformance.judge import Hudi
from tests.conformance.results import Record
from tests.conformance.row_json import to_lines

SCHEMA = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("a", pa.string()), ("b", pa.int64()), ("c", pa.binary())])
UNSENT = "__debezium_unavailable_value"
PAYLOADS = {
    ("IGNORE_DEFAULTS", True): "PartialUpdateAvroPayload",
    ("IGNORE_DEFAULTS", False): "OverwriteNonDefaultsWithLatestAvroPayload",
}
Row = dict[str, object]


def _is_sent(value: object, mode: str) -> bool:
    return value is not None if mode == "IGNORE_DEFAULTS" else value not in (UNSENT, UNSENT.encode())


def _fold(rows: Iterable[Row | None], mode: str, *, ordered: bool) -> Row | None:
    """Fold rows, and deletes without ordering (None), from left to right."""
    found: Row | None = None
    for row in rows:
        if row is None or found is None:
            found = row
            continue
        wins = not ordered or row["ts"] >= found["ts"]  # type: ignore[operator]
        winner, loser = (row, found) if wins else (found, row)
        found = {name: value if _is_sent(value, mode) else loser[name] for name, value in winner.items()}
    return found


@dataclass
class Versions:
    """What was written of a key: the row of its base file, and what the logs have."""

    base: Row | None = None
    logs: list[Row | None] = field(default_factory=list)

    def row(self, mode: str, *, ordered: bool, logs_first: bool) -> Row | None:
        """The row that is shown."""
        if not logs_first:
            return _fold([self.base, *self.logs], mode, ordered=ordered)
        if not self.logs:
            return self.base
        return _fold([self.base, _fold(self.logs, mode, ordered=ordered)], mode, ordered=ordered)


def _batch(chance: random.Random, mode: str, number: int, *, binary: bool) -> list[Row]:
    """Rows of different keys, a few of them late; without `binary` all binaries are sent."""
    rows: list[Row] = []
    for key in sorted(chance.sample(range(20), 9)):
        missing = (None, None, None) if mode == "IGNORE_DEFAULTS" else (UNSENT, number, UNSENT.encode())
        sent = (f"a{number}", number, f"c{number}".encode())
        late = chance.random() < 0.2 and mode == "IGNORE_DEFAULTS"
        values = [value if chance.random() < 0.6 else other for value, other in zip(sent, missing, strict=True)]
        if not binary:
            values[2] = sent[2]
        rows.append({"id": f"k{key}", "ts": number - 3 * late, **dict(zip("abc", values, strict=True))})
    return rows


@pytest.mark.parametrize("ordered", [True, False], ids=["event_time", "commit_time"])
@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
@pytest.mark.parametrize(
    ("first", "mode"),
    # Hudi itself creates tables with FILL_UNAVAILABLE for Debezium's payload only.
    [("ours", "IGNORE_DEFAULTS"), ("ours", "FILL_UNAVAILABLE"), ("hudi", "IGNORE_DEFAULTS")],
)
def test_both_fill_what_an_event_lacks(
    hudi: Hudi, record: Record, tmp_path: Path, first: str, mode: str, kind: str, ordered: bool
) -> None:
    path = tmp_path / "t"
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.table.type": kind,
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.table.partial.update.mode": mode,
        "hoodie.metadata.enable": "false",
        "hoodie.index.type": "BUCKET",
        "hoodie.bucket.index.num.buckets": "2",
        "hoodie.write.table.version": "9",
        "hoodie.clean.automatic": "false",
        **({"hoodie.table.ordering.fields": "ts"} if ordered else {}),
    }
    theirs = {**options, "hoodie.datasource.write.partitionpath.field": ""}
    theirs |= {"hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator"}
    ours = {"hoodie.clean.automatic": False, "hoodie.bucket.index.num.buckets": 2}
    if first == "ours":
        LsmTable.create(path, SCHEMA, options)
    else:
        theirs["hoodie.datasource.write.payload.class"] = f"org.apache.hudi.common.model.{PAYLOADS[mode, ordered]}"
    chance = random.Random(f"{mode} {kind} {ordered}")
    # Hudi 1.2 fills binaries when it writes, but not when Spark reads logs; docs/format/05-merge.md, "Partial updates".
    binary = mode == "IGNORE_DEFAULTS" or kind == "COPY_ON_WRITE"
    history: dict[str, Versions] = {}

    def shown(versions: Versions) -> Row | None:
        return versions.row(mode, ordered=ordered, logs_first=kind == "MERGE_ON_READ")

    for number in range(1, 9):
        by_us = (number % 2 == 1) == (first == "ours")
        record(f"v9 {kind} {mode} {'event' if ordered else 'commit'} time", "in turn", f"batch {number}")
        rows = _batch(chance, mode, number, binary=binary)
        table = pa.Table.from_pylist(rows, SCHEMA)
        if by_us:
            LsmTable(path, ours).upsert(table)
        else:
            hudi.write(path, "upsert", table, theirs)
        for row in rows:
            history.setdefault(str(row["id"]), Versions()).logs.append(row)
        if number == 5:
            LsmTable(path, ours).delete(table.select(["id"]).slice(0, 2))
            for row in rows[:2]:
                history[str(row["id"])].logs.append(None)
        if number in (4, 6) and kind == "MERGE_ON_READ":
            assert LsmTable(path, ours).compact() if by_us else hudi.compact(path, theirs)
        if kind == "COPY_ON_WRITE" or number in (4, 6):
            history = {key: Versions(shown(versions)) for key, versions in history.items()}
        found = LsmTable(path).scan(meta=True).to_arrow()
        assert hudi.read(path) == to_lines(found)
        known = [row for versions in history.values() if (row := shown(versions)) is not None]
        assert sorted(map(str, found.select(SCHEMA.names).to_pylist())) == sorted(map(str, known))
