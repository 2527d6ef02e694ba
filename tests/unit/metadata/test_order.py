"""A write that another one has overtaken in its file groups: the records of neither may hide those of the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.format.actions.commit import CommitMetadata, WriteStat, base_file_stat
from streaming_lsm.format.table.file_names import BaseFileName
from streaming_lsm.metadata.state import check_order
from streaming_lsm.timeline.instant import Instant, State

EARLY, LATE = "20261121120001504", "20261121120001631"


@dataclass
class Writes:
    """A timeline of completed writes."""

    commits: dict[Instant, CommitMetadata] = field(default_factory=dict)

    @property
    def completed_writes(self) -> list[Instant]:
        return list(self.commits)

    def read_commit(self, write: Instant) -> CommitMetadata:
        return self.commits[write]


def stat(partition: str, group: str, instant: str) -> WriteStat:
    return base_file_stat(partition, BaseFileName(group, "0-0-0", instant, "parquet"), total_bytes=1, num_writes=1)


def checked(
    group: str = "g",
    *,
    running: str = EARLY,
    other: str = LATE,
    operation: str = "UPSERT",
    action: str = "deltacommit",
    replaced: tuple[str, ...] = (),
) -> None:
    done = Instant(other, action, State.COMPLETED, "20261121120001753")
    metadata = CommitMetadata((stat("p", "g", other),), operation, {}, replaced={"p": replaced} if replaced else None)
    timeline: Any = Writes({done: metadata})
    check_order(
        timeline,
        Instant(running, "deltacommit", State.INFLIGHT),
        CommitMetadata((stat("p", group, running),), "UPSERT", {}),
    )


def test_a_write_that_was_overtaken_in_a_file_group_is_told() -> None:
    with pytest.raises(UnsupportedTable, match=f"requested after {EARLY}"):
        checked()


def test_other_groups_orders_and_compactions_are_no_hindrance() -> None:
    checked("other")
    checked(running=LATE, other=EARLY)
    checked(operation="LOG_COMPACT")
    checked(action="commit")


def test_a_write_that_was_overtaken_by_an_overwrite_of_other_groups_is_told() -> None:
    with pytest.raises(UnsupportedTable, match="has replaced file groups"):
        checked("new", operation="INSERT_OVERWRITE", action="replacecommit", replaced=("old",))
    checked("new", operation="CLUSTER", action="replacecommit", replaced=("old",))
    checked("new", operation="INSERT_OVERWRITE", action="replacecommit")
    checked("new", running=LATE, other=EARLY, operation="INSERT_OVERWRITE", action="replacecommit", replaced=("old",))
