"""The process in which Paimon writes the batches of ``tests.bench.peers.amplification``."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from tests.bench.peers.adapters.base import Place
from tests.bench.peers.adapters.paimon import open_system
from tests.bench.peers.columns import ROW_COLUMNS
from tests.bench.workload import KEY, orders
from tests.conformance.serve import claim_stdout, serve


def write(jars: list[str], folder: str, keys: int, batches: int) -> dict[str, int]:
    """Write a base of some keys, and the batches; returns the bytes of all data files after the base and in the end."""
    place = Place(Path(folder) / "paimon", tuple(jars), "")
    place.folder.mkdir()
    system = open_system(place)
    try:
        table = system.table("measured", ROW_COLUMNS)
        # Each key once: of two rows in one file a table with a primary key has the newer one.
        base = orders(8 * keys, keys, seed=0)
        path = Path(folder) / "base.parquet"
        pq.write_table(base.group_by(KEY).aggregate([]).join(base, KEY, join_type="left outer"), path)
        table.upsert([str(path)], 0)
        first = _bytes_below(place.folder)
        for number in range(1, batches + 1):
            table.upsert([f"{folder}/inputs/{number:04d}.parquet"], number)
        return {"base": first, "total": _bytes_below(place.folder)}
    finally:
        system.close()


def _bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("bucket-*/data-*.parquet"))


def describe(error: BaseException) -> tuple[str, str]:
    """Class and message of an error."""
    return type(error).__name__, str(error)


if __name__ == "__main__":
    serve({"write": write}, describe, claim_stdout())
