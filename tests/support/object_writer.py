"""A program that writes numbered batches to a table, and can be killed and started again."""

from __future__ import annotations

import sys

from streaming_lsm import LsmTable
from tests.support.small_tables import OPTIONS, Row, rows


def batch(writer: str, number: int) -> list[Row]:
    """The rows of a batch: one of the writer's own, and one that all writers write."""
    return [(f"{writer}-{number}", "nl", number, number), ("shared", "de", number, ord(writer[0]))]


def main(uri: str, writer: str, batches: int) -> None:
    """Write the batches from 0; those that are committed are passed over."""
    table = LsmTable(uri, {**OPTIONS, "lsm.writer.id": writer})
    for number in range(batches):
        table.upsert(rows(*batch(writer, number)), batch_id=number)
        print(number, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
