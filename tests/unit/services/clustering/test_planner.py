"""What a clustering chooses, without files."""

from __future__ import annotations

import re

import pytest

from streaming_lsm.config import Options
from streaming_lsm.errors import ConfigError, CorruptFileError
from streaming_lsm.file_group.file_system_view import BaseFile, FileSlice
from streaming_lsm.format.actions.clustering_plan import ClusteredSlice, ClusteringPlan, InputGroup, clustered_groups
from streaming_lsm.format.avro.container import encode_record
from streaming_lsm.format.table.file_names import BaseFileName
from streaming_lsm.services.clustering.planner import select_groups
from streaming_lsm.services.clustering.rules import ClusteringRules, PartitionFilter

T = "20261121110000000"


def sliced(partition: str, number: int, size: int, instant: str = T) -> FileSlice:
    name = BaseFileName(f"f{number}-0", "0-0-0", instant)
    return FileSlice(partition, name.file_id, BaseFile(f"{partition}/{name}", name, size), ())


def chosen(
    slices: list[FileSlice], rules: ClusteringRules, busy: set[tuple[str, str]] | None = None
) -> list[list[str]]:
    found = select_groups(slices, busy or set(), rules, lambda _: None)
    return [[one.file_id for one in group.slices] for group in found.plan.groups]


def test_slices_of_a_partition_are_cut_into_groups_of_some_bytes_the_larger_first() -> None:
    slices = [*(sliced("a", n, size) for n, size in enumerate([10, 40, 30, 20])), sliced("b", 9, 15)]
    rules = ClusteringRules(group_bytes=60, target_bytes=30)
    assert chosen(slices, rules) == [["f1-0"], ["f2-0", "f3-0", "f0-0"], ["f9-0"]]
    plan = select_groups(slices, set(), rules, lambda _: None).plan
    assert [group.outputs for group in plan.groups] == [2, 2, 1]
    assert chosen(slices, ClusteringRules(group_bytes=60, single=False)) == [["f2-0", "f3-0", "f0-0"]]
    assert chosen(slices, ClusteringRules(group_bytes=60, groups=1)) == [["f1-0"]]


def test_large_files_busy_groups_and_other_partitions_are_left_out_and_counted() -> None:
    slices = [sliced("a", 1, 10), sliced("a", 2, 99), sliced("a", 3, 10), sliced("b", 4, 10)]
    rules = ClusteringRules(small_bytes=99, partitions=PartitionFilter(selected=frozenset({"a"})))
    found = select_groups(slices, {("a", "f3-0")}, rules, lambda _: None)
    assert found.plan.file_groups == {("a", "f1-0")}
    assert (found.file_groups, found.busy, found.outside, found.large) == (4, 1, 1, 1)
    assert "1 are in a pending plan already" in found.reasons


def test_what_one_clustering_of_this_order_made_is_not_sorted_again() -> None:
    rules = ClusteringRules(columns=("x",))
    slices = [sliced("a", 1, 10), sliced("a", 2, 10)]
    assert select_groups(slices, set(), rules, {T: rules.order}.get).settled == 2
    assert not select_groups(slices, set(), ClusteringRules(columns=("y",)), {T: rules.order}.get).settled
    later = [*slices, sliced("a", 3, 10, "20261121120000000")]
    assert len(select_groups(later, set(), rules, {T: rules.order}.get).plan.file_groups) == 3


@pytest.mark.parametrize(
    ("chooses", "expected"),
    [
        (PartitionFilter(), {"d1", "d2", "d3", "e"}),
        (PartitionFilter("RECENT_DAYS", recent=2), {"d3", "e"}),
        (PartitionFilter("RECENT_DAYS", recent=2, skipped=1), {"d2", "d3"}),
        (PartitionFilter("SELECTED_PARTITIONS", begin="d2", end="d3"), {"d2", "d3"}),
        (PartitionFilter("SELECTED_PARTITIONS", begin="d3"), {"d3", "e"}),
        (PartitionFilter(pattern=re.compile("d[12]")), {"d1", "d2"}),
        (PartitionFilter(selected=frozenset({"d1", "x"})), {"d1"}),
    ],
    ids=str,
)
def test_partitions_are_chosen_as_the_options_say(chooses: PartitionFilter, expected: set[str]) -> None:
    assert chooses.choose(["d2", "d1", "e", "d3"]) == expected


def test_the_options_have_hudi_s_names_and_defaults() -> None:
    rules = ClusteringRules.of(Options({}))
    assert rules == ClusteringRules()
    assert ClusteringRules.of(Options({"hoodie.layout.optimize.strategy": "ZORDER"})).layout == "z-order"
    with pytest.raises(ConfigError, match="hilbert is not supported by this release"):
        Options({"hoodie.layout.optimize.strategy": "HILBERT"})


def test_a_plan_is_read_as_it_was_written() -> None:
    one = ClusteredSlice("nl", "f1-0", "f1-0_0-0-0_1.parquet", (".f1-0_2.log.1_0-0-0",))
    plan = ClusteringPlan((InputGroup((one, ClusteredSlice("nl", "f2-0")), 3, {"TOTAL_IO_MB": 2.0}),), {"a": "b"})
    data = plan.encode("file:///t")
    assert ClusteringPlan.decode(data, "x") == plan
    assert clustered_groups(data, "x") == plan.file_groups == {("nl", "f1-0"), ("nl", "f2-0")}
    with pytest.raises(CorruptFileError, match="no clustering plan"):
        ClusteringPlan.decode(encode_record("HoodieRequestedReplaceMetadata", {}), "x")
