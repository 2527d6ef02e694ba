"""Leave out the files, row groups and rows of slices that a look-up of record keys does not need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streaming_lsm.file_group.data_file import DataFile
from streaming_lsm.file_group.key_filters import WantedKeys
from streaming_lsm.file_group.key_search import files_of_keys
from streaming_lsm.query.prune.row_groups import RowGroupCounts


@dataclass(frozen=True)
class KeyPruner:
    """Prunes the files of slices by record keys.

    All versions of a row have one key, so that the rows that are left merge as they do among the others.
    """

    wanted: WantedKeys

    def prune(self, files: Sequence[DataFile]) -> tuple[list[DataFile], RowGroupCounts]:
        """Leave out files, row groups and rows without a wanted key; see `RowGroupPruner.prune`.

        Raises:
            CorruptFileError: a file is missing, or its bloom filter is damaged.
        """
        may_hold = files_of_keys(files, self.wanted).tolist()
        left = [
            found
            for file, may in zip(files, may_hold, strict=True)
            if may and (found := file.of_keys(self.wanted)) is not None
        ]
        indexes = [index for file in files if (index := file.key_index) is not None]
        spanned = sum(len(index.spanned(self.wanted)) for index in indexes)
        groups = sum(index.metadata.num_row_groups for index in indexes)
        counts = RowGroupCounts(
            files=len(files),
            files_skipped=len(files) - len(left),
            row_groups=sum(file.stored_groups for file in files),
            by_key=groups - spanned,
            by_bloom=spanned - sum(len(file.groups) for file in left if file.groups is not None),
            rows=sum(file.rows for file in left),
        )
        return left, counts
