"""The warning that an index is not read names the command that builds it again."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pyarrow.compute as pc
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.cli.commands import main
from streaming_lsm.services.indexes.names import OPTIONS
from tests.support.metadata_tables import INDEXED, LOCATED
from tests.support.small_tables import create, rows, shown

EVERY_INDEX = {**INDEXED, **LOCATED, "hoodie.index.type": "GLOBAL_SIMPLE", "hoodie.bucket.index.num.buckets": None}
INDEXES = (*OPTIONS, "secondary_index_of", "expr_index_of")
READS = {"hoodie.metadata.enable": True}
ROWS = rows(*((f"k{number:02d}", "nl" if number % 2 else "be", 1, number) for number in range(40)))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("with each index")
    table = create(root, **EVERY_INDEX)
    table.upsert(ROWS)
    table.upsert(ROWS)
    table.create_index("secondary_index_of", {"hoodie.metadata.index.secondary.column": "qty"})
    expression = {"hoodie.expression.index.function": "lower", "hoodie.metadata.index.expression.column": "id"}
    table.create_index("expr_index_of", expression)
    return root


@pytest.mark.parametrize(
    ("index", "wanted"),
    [
        ("files", None),
        ("column_stats", pc.field("qty") < 3),
        ("partition_stats", pc.field("qty") < 3),
        ("record_index", pc.field("id") == "k01"),
        ("secondary_index_of", pc.field("qty") == 3),
        ("expr_index_of", pc.field("id") == "k01"),
    ],
)
def test_the_command_of_the_warning_builds_the_index_again(
    root: Path,
    index: str,
    wanted: pc.Expression | None,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    expected = shown(LsmTable(root, READS), filter=wanted)
    assert not caplog.text
    for path in (root / ".hoodie/metadata" / index).glob("*_*.hfile"):
        path.write_bytes(path.read_bytes()[:-30])
    assert shown(LsmTable(root, READS), filter=wanted) == expected
    warned = next(one for one in caplog.messages if f".hoodie/metadata/{index} is not read, " in one)
    told = re.search(r"; (lsm index verify .* --repair) builds it again$", warned)
    assert told is not None
    _, *arguments = shlex.split(told[1])
    assert main(arguments) == 0
    assert f"built again: {index}" in capsys.readouterr().out
    assert {one.name: one.state for one in LsmTable(root).indexes()} == dict.fromkeys(INDEXES, "ready")
    caplog.clear()
    assert shown(LsmTable(root, READS), filter=wanted) == expected
    assert not caplog.text
