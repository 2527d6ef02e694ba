"""Read from the options how a clustering chooses file slices, sorts rows and sizes files."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from streaming_lsm import config
from streaming_lsm.config import Options
from streaming_lsm.format.actions.clustering_plan import LAYOUT_PARAM, SORT_COLUMNS_PARAM, TARGET_BYTES_PARAM

LINEAR, Z_ORDER = "linear", "z-order"
RECENT_DAYS, SELECTED_PARTITIONS = "RECENT_DAYS", "SELECTED_PARTITIONS"


@dataclass(frozen=True)
class PartitionFilter:
    """Chooses the partitions of a clustering.

    Attributes:
        mode: ``NONE``, `RECENT_DAYS` or `SELECTED_PARTITIONS`.
        recent: with `RECENT_DAYS`: number of the last partitions, in the order of their paths.
        skipped: number of those at the end that are left out before.
        begin, end: with `SELECTED_PARTITIONS`: the first and the last path; None for no limit.
        pattern: matches whole paths; None for all.
        selected: the paths that are clustered; None for all.
    """

    mode: str = "NONE"
    recent: int = 2
    skipped: int = 0
    begin: str | None = None
    end: str | None = None
    pattern: re.Pattern[str] | None = None
    selected: frozenset[str] | None = None

    @staticmethod
    def of(options: Options) -> PartitionFilter:
        """Read the filter from the options."""
        pattern, selected = options[config.CLUSTER_PARTITIONS], options[config.CLUSTER_SELECTED]
        names = None if selected is None else frozenset(name.strip() for name in selected.split(",") if name.strip())
        return PartitionFilter(
            mode=options[config.CLUSTER_FILTER] or "NONE",
            recent=options[config.CLUSTER_RECENT],
            skipped=options[config.CLUSTER_SKIPPED],
            begin=options[config.CLUSTER_BEGIN],
            end=options[config.CLUSTER_END],
            pattern=None if pattern is None else re.compile(pattern),
            selected=names,
        )

    def choose(self, partitions: Collection[str]) -> frozenset[str]:
        """Return the partitions that are clustered."""
        kept = [
            path
            for path in sorted(partitions, reverse=True)
            if (self.pattern is None or self.pattern.fullmatch(path))
            and (self.selected is None or path in self.selected)
        ]
        if self.mode == RECENT_DAYS:
            kept = kept[self.skipped : self.skipped + self.recent]
        elif self.mode == SELECTED_PARTITIONS:
            kept = [p for p in kept if (self.begin or "") <= p and (self.end is None or p <= self.end)]
        return frozenset(kept)


@dataclass(frozen=True)
class ClusteringRules:
    """Settings by which a clustering chooses file slices, sorts rows and sizes files.

    Attributes:
        columns: by which rows are sorted; none for the record key.
        layout: `LINEAR` or `Z_ORDER`.
        target_bytes: size of the new files.
        small_bytes: size of a base file from which on its slice is left out.
        group_bytes: most bytes of an input group, unless it is one slice.
        groups: most input groups.
        single: whether an input group may be one slice.
        partitions: chooses the partitions.
    """

    columns: Sequence[str] = ()
    layout: str = LINEAR
    target_bytes: int = 1 << 30
    small_bytes: int = 300 << 20
    group_bytes: int = 2 << 30
    groups: int = 30
    single: bool = True
    partitions: PartitionFilter = field(default_factory=PartitionFilter)

    @staticmethod
    def of(options: Options) -> ClusteringRules:
        """Read the rules from the options."""
        return ClusteringRules(
            columns=options[config.CLUSTER_COLUMNS],
            layout=options[config.CLUSTER_LAYOUT],
            target_bytes=options[config.CLUSTER_TARGET_BYTES],
            small_bytes=options[config.CLUSTER_SMALL_BYTES],
            group_bytes=options[config.CLUSTER_GROUP_BYTES],
            groups=options[config.CLUSTER_GROUPS],
            single=options[config.CLUSTER_SINGLE],
            partitions=PartitionFilter.of(options),
        )

    @property
    def params(self) -> Mapping[str, str]:
        """What the plan records of them, by which every run of it sorts and sizes alike."""
        columns = {SORT_COLUMNS_PARAM: ",".join(self.columns)} if self.columns else {}
        return {**columns, LAYOUT_PARAM: self.layout, TARGET_BYTES_PARAM: str(self.target_bytes)}

    @property
    def order(self) -> str:
        """The order of rows as text, by which a clustering is compared with an earlier one."""
        return order_text(self.layout, self.columns)


def order_text(layout: str, columns: Sequence[str]) -> str:
    """Describe the order of rows: the layout matters with several columns only."""
    return json.dumps({"layout": layout if len(columns) > 1 else LINEAR, "columns": list(columns)})
