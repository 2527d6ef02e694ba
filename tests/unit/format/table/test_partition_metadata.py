import pytest

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.table.partition_metadata import (
    PartitionMetadata,
    parse_partition_metadata,
    print_partition_metadata,
)


@pytest.mark.parametrize(("path", "depth"), [("", 0), ("south", 1), ("2026/11/21", 3)])
def test_the_depth_is_the_number_of_path_segments(path: str, depth: int) -> None:
    data = print_partition_metadata("20261121040120865", path)
    assert parse_partition_metadata(data, "x") == PartitionMetadata("20261121040120865", depth)
    assert data.startswith(b"#partition metadata\n")


@pytest.mark.parametrize(
    ("data", "key"),
    [
        (b"", "commitTime"),
        (b"commitTime=20\n", "partitionDepth"),
        (b"commitTime=x\npartitionDepth=1\n", "commitTime"),
        (b"commitTime=20\npartitionDepth=-1\n", "partitionDepth"),
        (b"commitTime=20\npartitionDepth=" + b"9" * 5000, "partitionDepth"),
    ],
)
def test_a_malformed_file_is_reported_by_name_and_key(data: bytes, key: str) -> None:
    with pytest.raises(CorruptFileError, match=f"south/.hoodie_partition_metadata: {key}"):
        parse_partition_metadata(data, "south/.hoodie_partition_metadata")
