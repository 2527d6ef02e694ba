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
from streaming_lsm.format.actions.commit import CommitMetadata, WriteStat
from tests.support.peak_memory import peak
from tests.support.small_tables import create, rows
from tests.support.writers import NO_WAIT

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


def _commit_of_empty_files() -> Callable[[Path], None]:
    """A commit whose only write stat names 100 million log files, each an empty text."""

    def damage(path: Path) -> None:
        stat = WriteStat("nl", "f", "nl/f", "null", log_files=("Q", "Q", "Q"))
        data = CommitMetadata((stat,), "UPSERT", {}).encode()
        head, items, tail = data.partition(b"\x06\x02Q\x02Q\x02Q")
        assert items
        sync, tail = tail[-16:], tail[:-16]
        before, _, head = head.partition(sync + b"\x02")
        _, length = _varint(head)
        body = head[length:] + _long(EMPTY) + bytes(EMPTY) + tail
        path.write_bytes(before + sync + b"\x02" + _long(len(body)) + body + sync)

    return damage


def _long(value: int) -> bytes:
    value, encoded = 2 * value, bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def _varint(data: bytes) -> tuple[int, int]:
    """The raw value of the number at the start, and its length in bytes."""
    length = next(place for place, byte in enumerate(data) if byte < 0x80) + 1
    return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(data[:length])), length


def _many(size: int, head: str = "[", unit: str = "[],", tail: str = "[]]") -> str:
    return head + unit * (size // len(unit)) + tail


PROPERTIES, LOCK = ".hoodie/hoodie.properties", ".hoodie/lock"
COMMIT, MANIFEST, VERSION = "the commit", ".hoodie/timeline/history/manifest_1", ".hoodie/timeline/history/_version_"
MIB = 1 << 20
EMPTY = 100_000_000
SHAPES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "properties-of-zeros": (PROPERTIES, _zeros),
    "properties-of-many-keys": (PROPERTIES, _write(b"".join(b"k%d=v\n" % n for n in range(700_000)))),
    "properties-of-near-keys": (PROPERTIES, _write(b"".join(b"hoodie.table.x%d=v\n" % n for n in range(1_999)))),
    "properties-of-one-line": (PROPERTIES, _write(b"\\u0041" * (8 << 20 >> 3))),
    "commit-of-zeros": (COMMIT, _zeros),
    "commit-just-small-enough": (COMMIT, _write(bytes(128 << 20))),
    "commit-with-deep-schema": (COMMIT, _commit_with("schema", DEEP.decode())),
    "commit-with-deep-ledger": (COMMIT, _commit_with("lsm.writers", DEEP.decode())),
    "commit-with-schema-of-many-lists": (COMMIT, _commit_with("schema", _many(60 * MIB))),
    "commit-with-schema-of-lists-just-short-enough": (COMMIT, _commit_with("schema", _many(4 * MIB - 16))),
    "commit-with-schema-of-few-long-columns": (
        COMMIT,
        _commit_with("schema", _many(3 * MIB, unit='["xxxxxxxxx"],')),
    ),
    "commit-with-schema-of-lists-in-fewer-texts-than-refused": (COMMIT, _commit_with("schema", _many(15 * MIB))),
    "commit-with-many-header-entries": (COMMIT, _write(b"Obj\x01" + _long(60 * MIB) + b"\x08abcd\x08efgh" * (6 * MIB))),
    "commit-with-ledger-of-many-lists": (COMMIT, _commit_with("lsm.writers", _many(60 * MIB, '{"a":[', tail="[]]}"))),
    "commit-with-file-state-of-many-lists": (
        COMMIT,
        _commit_with("lsm.files", _many(60 * MIB, '{"count":[', tail="[]]}")),
    ),
    "commit-of-many-empty-log-files": (COMMIT, _commit_of_empty_files()),
    "manifest-of-many-lists": (MANIFEST, _write(_many(120 * MIB, '{"files":[', tail="[]]}").encode())),
    "manifest-of-lists-just-short-enough": (MANIFEST, _write(_many(4 * MIB - 32, '{"files":[', tail="[]]}").encode())),
    "version-of-digits": (VERSION, _write(b"9" * (120 * MIB))),
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
    path.parent.mkdir(exist_ok=True)
    damage(path)
    baseline, begun, said = peak(), perf_counter(), "nothing"
    try:
        if name in (MANIFEST, VERSION):
            LsmTable(root).incremental("000").to_arrow()
        else:
            LsmTable(root, {**NO_WAIT, "lsm.writer.id": "w"}).upsert(rows(("b", "DE", 1, 10)), batch_id=1)
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
