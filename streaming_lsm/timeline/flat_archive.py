"""Read the archived timeline of layout 1: inline logs with a record for every state of an action.

See docs/format/02-timeline.md, "Layout 1", and docs/format/09-hudi-1.2.md, "Archived timeline (v8, v9: LSM)".
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.avro.record_reader import decode_data_block
from streaming_lsm.format.log.inline_blocks import BlockType, Header, read_blocks
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.checked import read_checked
from streaming_lsm.timeline.instant import FLAT_FOLDER, WRITE_ACTIONS, Instant

ARCHIVE_FOLDER = f"{FLAT_FOLDER}/archived"
_NAME = re.compile(r"\.commits_\.archive\.[0-9]+(_[0-9-]+)?")
_ENTRY = ("actionState", "actionType", "commitTime")


def flat_writes(storage: Storage) -> Iterator[tuple[str, str]]:
    """Yield requested time and action of each archived write.

    Raises:
        CorruptFileError: a file cannot be read.
    """
    for name in storage.names(ARCHIVE_FOLDER):
        if not _NAME.fullmatch(name):
            continue
        path = f"{ARCHIVE_FOLDER}/{name}"
        for block in read_blocks(read_checked(storage, path), path):
            if block.type is not BlockType.AVRO_DATA:
                raise CorruptFileError(f"{path}: a {block.type.name} block at {block.offset}; restore the file")
            schema = block.header.get(Header.SCHEMA, "")
            for entry in decode_data_block(schema, block.content, path, _ENTRY).to_pylist():
                done = str(entry["actionState"]).upper() == "COMPLETED"
                action = Instant.completed_action(str(entry["actionType"]))
                if done and action in WRITE_ACTIONS:
                    yield str(entry["commitTime"]), action
