"""What hostile files under ``.hoodie`` cost, each in a process of its own: ``python -m tests.support.hostile_files``.

Prints as JSON a line for each shape: its name, the error, its seconds, and the bytes by which the peak of the resident
set rose above that of a read of the same table in good order. The processes are forked from one that has imported all,
as that takes longer than most shapes; the kernel counts the peak of a forked process anew.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from streaming_lsm import LsmTable
from streaming_lsm.errors import LsmError
from streaming_lsm.format.actions.commit import CommitMetadata
from tests.support.peak_memory import peak
from tests.support.small_tables import create, rows

DEEP = b"[" * 1_000_000
ZEROS = 300 << 20


def _zeros(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(ZEROS)


def _commit_with(key: str, value: str) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.write_bytes(CommitMetadata((), "UPSERT", {key: value}).encode())

    return damage


def _write(data: bytes) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.write_bytes(data)

    return damage


PROPERTIES, LOCK = ".hoodie/hoodie.properties", ".hoodie/lock"
COMMIT = "the commit"
SHAPES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "properties-of-zeros": (PROPERTIES, _zeros),
    "properties-of-many-keys": (PROPERTIES, _write(b"".join(b"k%d=v\n" % n for n in range(700_000)))),
    "properties-of-near-keys": (PROPERTIES, _write(b"".join(b"hoodie.table.x%d=v\n" % n for n in range(1_999)))),
    "properties-of-one-line": (PROPERTIES, _write(b"\\u0041" * (8 << 20 >> 3))),
    "commit-of-zeros": (COMMIT, _zeros),
    "commit-just-small-enough": (COMMIT, _write(bytes(128 << 20))),
    "commit-with-deep-schema": (COMMIT, _commit_with("schema", DEEP.decode())),
    "commit-with-deep-ledger": (COMMIT, _commit_with("lsm.writers", DEEP.decode())),
    "deep-lock": (LOCK, _write(DEEP)),
    "lock-of-zeros": (LOCK, _zeros),
}


def measure(root: Path, shape: str) -> None:
    """Damage a table as `shape` says, use it, and print what that cost."""
    table = create(root)
    table.upsert(rows(("a", "DE", 1, 10)))
    table.scan().to_arrow()
    name, damage = SHAPES[shape]
    (commit,) = table.timeline.completed_writes
    path = root / (commit.path if name == COMMIT else name)
    damage(path)
    baseline, begun, said = peak(), perf_counter(), "nothing"
    try:
        LsmTable(root, {"lsm.writer.id": "w"}).upsert(rows(("b", "DE", 1, 10)), batch_id=1)
    except LsmError as error:
        said = f"{type(error).__name__}: {error}"
    found = {"shape": shape, "said": said[:300], "seconds": perf_counter() - begun, "rise": peak() - baseline}
    print(json.dumps(found), flush=True)


def main(folder: str) -> None:
    """Measure each shape."""
    for shape in SHAPES:
        child = os.fork()
        if not child:
            measure(Path(folder) / shape, shape)
            os._exit(0)
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
