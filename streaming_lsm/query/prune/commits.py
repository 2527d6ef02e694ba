"""Leave out the row groups without a row of some commits, for incremental queries, which filter before the merge."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa

from streaming_lsm.file_group.data_file import DataFile
from streaming_lsm.query.prune.bounds import may_be_true
from streaming_lsm.query.prune.predicate import Membership
from streaming_lsm.query.prune.statistics import file_bounds
from streaming_lsm.schema import COMMIT_TIME

_SCHEMA = pa.schema([pa.field(COMMIT_TIME, pa.string())])


def of_commits(file: DataFile, commits: Collection[str]) -> DataFile:
    """Return a file reduced to the row groups that may have rows of some commits.

    Delete logs and logs of one commit, whose rows are not filtered, stay as they are; so do files that are not open.
    """
    if file.commits is None or file.is_delete or file.opened is None:
        return file
    bounds = file_bounds(file.opened, file.path, _SCHEMA, (COMMIT_TIME,))
    wanted = Membership(COMMIT_TIME, pa.array(sorted(commits), pa.string()))
    read = may_be_true(wanted, bounds, file.opened.parquet.metadata.num_row_groups)
    return file if read.all() else file.part(np.flatnonzero(read).tolist())
