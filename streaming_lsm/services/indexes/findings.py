"""Define what a check of indexes finds, and the state of a table that it compares them with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

from streaming_lsm.format.metadata.files_partition import partition_key
from streaming_lsm.metadata.file_slices import METADATA_TABLE, counted_instants
from streaming_lsm.metadata.partitions.base import FileReaders
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.subfolder import Subfolder
from streaming_lsm.timeline.timeline import Timeline

MISSING, WRONG, LEFT_OVER, DAMAGED, BEHIND = "missing", "wrong", "left over", "damaged", "behind"
_NAMED = 3


@dataclass(frozen=True)
class IndexFinding:
    """A difference between an index and the files of the table.

    Attributes:
        index: partition of the metadata table.
        kind: `MISSING`: the table has what the index lacks; `WRONG`: the index tells something else; `LEFT_OVER`: the
            index tells of what the table does not have; `DAMAGED`: it cannot be read; `BEHIND`: it lacks an action.
        message: says what, and names the first differences.
        count: number of differences.
    """

    index: str
    kind: str
    message: str
    count: int = 1


@dataclass(frozen=True)
class Checked:
    """Reports what a check of an index has compared.

    Attributes:
        records: number of records of the index.
        findings: the differences.
    """

    records: int
    findings: tuple[IndexFinding, ...] = ()


@dataclass(frozen=True)
class CheckedState:
    """A state of a table with which its indexes are compared.

    Attributes:
        storage: the table.
        data: its timeline.
        timeline: timeline of its metadata table, loaded later.
        properties: its properties.
        files: size in bytes by file name, by partition path: the files of completed actions, as its folders have them.
        doomed: paths of files that a pending clean deletes.
        readers: read its files.
        threads: number of threads that read files; 0 for a default.
    """

    storage: Storage
    data: Timeline
    timeline: Timeline
    properties: Mapping[str, str]
    files: Mapping[str, Mapping[str, int]]
    doomed: Collection[str]
    readers: FileReaders
    threads: int

    @cached_property
    def metadata(self) -> Storage:
        """Storage of the metadata table."""
        return Subfolder(self.storage, METADATA_TABLE)

    @cached_property
    def counts(self) -> Callable[[str], bool]:
        """Whether the log records of an instant are valid, see `counted_instants`."""
        return counted_instants(self.data)

    @cached_property
    def avro(self) -> str | None:
        """Avro JSON of the table's columns; None if it has none yet."""
        return self.data.table_schema() or self.properties.get("hoodie.table.create.schema")


def shown(names: Collection[str], count: int) -> str:
    """Return the first of several names, for a message.

    Args:
        names: the first ones at least.
        count: how many there are.
    """
    first = ", ".join(sorted(names)[:_NAMED])
    return first if count <= _NAMED else f"{first}, …"


def shown_file(partition: str, name: str) -> str:
    """Return a file as messages show it."""
    return f"{partition_key(partition)}/{name}"
