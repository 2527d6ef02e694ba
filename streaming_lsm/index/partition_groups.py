"""Hold the live file groups of each partition, for tasks that ask for those of a few partitions.

A table may have hundreds of thousands of file groups, and the closure of every task of a batch holds them. So each
partition is encoded apart, once while its file groups stay as they are, and decoded by a task that asks for it.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterator, Mapping

from streaming_lsm.file_group.file_system_view import BaseFile
from streaming_lsm.format.table.file_names import BaseFileName, parse_file_name
from streaming_lsm.index.live_file_group import LiveFileGroup

Groups = Mapping[int, LiveFileGroup]
"""File groups of a partition by number."""


class PartitionGroups(Mapping[str, Groups]):
    """The live file groups of each partition by number, as of one state of the table; picklable."""

    def __init__(self, partitions: Mapping[str, PackedGroups]) -> None:
        """Take the file groups of each partition."""
        self._partitions = dict(partitions)

    def __getitem__(self, partition: str) -> Groups:
        return self._partitions[partition].groups

    def __iter__(self) -> Iterator[str]:
        return iter(self._partitions)

    def __len__(self) -> int:
        return len(self._partitions)


class PackedGroups:
    """The live file groups of one partition, in memory, encoded, or both."""

    def __init__(self, groups: Groups | None, encoded: bytes | None = None) -> None:
        """Take the file groups, or their encoded form."""
        self._groups, self._encoded = groups, encoded

    @property
    def groups(self) -> Groups:
        """The file groups."""
        if self._groups is None:
            assert self._encoded is not None
            self._groups = _decoded(self._encoded)
        return self._groups

    def __reduce__(self) -> tuple[type[PackedGroups], tuple[None, bytes]]:
        if self._encoded is None:
            self._encoded = _encoded(self.groups)
        return PackedGroups, (None, self._encoded)


def _encoded(groups: Groups) -> bytes:
    """Encode file groups as tuples, which take a tenth of the time that objects take."""
    rows = [
        (
            number,
            group.file_id,
            None if group.base is None else (group.base.path, group.base.size),
            group.logs,
            group.log_sizes,
        )
        for number, group in groups.items()
    ]
    return zlib.compress(pickle.dumps(rows), 1)


def _decoded(encoded: bytes) -> Groups:
    rows = pickle.loads(zlib.decompress(encoded))
    return {
        number: LiveFileGroup(file_id, None if base is None else _base(*base), logs, sizes)
        for number, file_id, base, logs, sizes in rows
    }


def _base(path: str, size: int) -> BaseFile:
    name = parse_file_name(path.rpartition("/")[2])
    assert isinstance(name, BaseFileName)
    return BaseFile(path, name, size)
