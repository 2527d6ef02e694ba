"""What killed processes left of a metadata table goes."""

from __future__ import annotations

from pathlib import Path

from streaming_lsm.timeline.properties_file import update_properties
from tests.support.metadata_tables import assert_settled
from tests.unit.metadata.test_table import METADATA, TIMELINE, make, write, written


def test_what_is_left_of_one_that_was_dropped_goes_when_somebody_says_anything(tmp_path: Path) -> None:
    storage = make(tmp_path)
    for wanted, left in ((None, True), (False, False), (True, False)):
        for path in (f"{METADATA}/files/x.hfile", ".hoodie/.index_defs/index.json"):
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_bytes(b"x")
        write(storage, 0, {} if wanted is None else {"hoodie.metadata.enable": wanted})
        assert (tmp_path / METADATA / "files/x.hfile").exists() is left
        assert (tmp_path / ".hoodie/.index_defs").exists() is left
    assert_settled(tmp_path)


def test_definitions_that_the_properties_name_are_no_leftovers(tmp_path: Path) -> None:
    storage = make(tmp_path)
    storage.put_if_absent(".hoodie/.index_defs/index.json", b"{}")
    update_properties(storage, {"hoodie.table.index.defs.path": ".hoodie/.index_defs/index.json"})
    for batch in range(2):
        write(storage, batch)
    assert (tmp_path / ".hoodie/.index_defs/index.json").exists()
    assert_settled(tmp_path)


def test_a_plain_file_in_its_place_is_a_leftover_too(tmp_path: Path) -> None:
    storage = make(tmp_path)
    storage.put_if_absent(METADATA, b"")
    write(storage, 0)
    assert_settled(tmp_path)


def test_half_made_files_of_killed_processes_are_swept(tmp_path: Path) -> None:
    storage = written(tmp_path)
    left = [tmp_path / METADATA / folder / f".{'a' * 32}.lsm-tmp" for folder in (".hoodie", "files")]
    left.append(tmp_path / TIMELINE / f".{'b' * 32}.lsm-tmp")
    for path in left:
        path.write_bytes(b"half")
    write(storage, 2, {})
    assert [path for path in left if path.exists()] == []
    assert_settled(tmp_path)
