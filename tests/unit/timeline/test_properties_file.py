"""hoodie.properties through creation, changes, and deaths in the middle of either."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from streaming_lsm.errors import CommitConflict, ConfigError, CorruptFileError, TableNotFound, UnsupportedTable
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.java_properties import print_properties
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.timeline.properties_file import (
    BACKUP_PATH,
    PROPERTIES_PATH,
    create_table_files,
    load_properties,
    update_properties,
)
from tests.support.crash_points import sample
from tests.support.faulty_storage import Fault, FaultyStorage, Killed
from tests.support.writers import CONFIG, NOON_MS, make_table

KEY = "hoodie.table.cdc.enabled"


def test_a_new_table_has_hudis_folders_and_properties_that_read_back(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "orders")
    create_table_files(storage, CONFIG.to_properties(), clock=lambda: NOON_MS + 5)
    for folder in ("timeline/history", ".temp", ".schema", ".aux/.bootstrap/.partitions", ".aux/.bootstrap/.fileids"):
        assert (tmp_path / "orders/.hoodie" / folder).is_dir()
    assert load_properties(storage) == CONFIG.to_properties()
    lines = storage.read(PROPERTIES_PATH).splitlines()
    assert lines[:2] == [b"#Properties saved on 2026-11-21T12:00:00.005Z", b"#Sat Nov 21 12:00:00 UTC 2026"]
    assert TableConfig.from_properties(load_properties(storage), PROPERTIES_PATH) == CONFIG


def test_a_table_is_created_once(tmp_path: Path) -> None:
    storage = make_table(tmp_path)
    with pytest.raises(CommitConflict, match=r"there is a table at .* already"):
        create_table_files(storage, {"hoodie.table.name": "other"})
    assert load_properties(storage) == CONFIG.to_properties()


@pytest.mark.parametrize("below", ["", "/orders", "/lake/orders"])
def test_a_file_in_the_way_of_a_new_table_is_named(tmp_path: Path, below: str) -> None:
    file = tmp_path / "place"
    file.write_text("no table")
    with pytest.raises(ConfigError, match=r"place.* is a file"):
        create_table_files(LocalStorage(f"{file}{below}"), CONFIG.to_properties())
    assert file.read_text() == "no table"


def test_a_table_whose_properties_are_being_changed_is_not_created_anew(tmp_path: Path) -> None:
    storage = make_table(tmp_path)
    storage.put_if_absent(BACKUP_PATH, storage.read(PROPERTIES_PATH))
    storage.delete(PROPERTIES_PATH)
    with pytest.raises(CommitConflict):
        create_table_files(storage, CONFIG.to_properties())
    assert load_properties(storage) == CONFIG.to_properties()


def test_a_folder_without_properties_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(TableNotFound, match=str(tmp_path)):
        load_properties(LocalStorage(tmp_path))
    with pytest.raises(TableNotFound):
        update_properties(LocalStorage(tmp_path), {KEY: "true"})


def test_a_creation_that_died_leaves_no_table_or_a_whole_one(tmp_path: Path) -> None:
    counted = FaultyStorage(LocalStorage(tmp_path / "unharmed"))
    create_table_files(counted, CONFIG.to_properties())
    for call in range(len(counted.calls)):
        for fault in (Fault.KILL_BEFORE, Fault.KILL_AFTER):
            storage = LocalStorage(tmp_path / f"{call}{fault.name}")
            with pytest.raises(Killed):
                create_table_files(FaultyStorage(storage, {call: fault}), CONFIG.to_properties())
            with suppress(CommitConflict):
                create_table_files(storage, CONFIG.to_properties())
            assert load_properties(storage) == CONFIG.to_properties()


def test_a_torn_file_is_read_from_its_backup(tmp_path: Path) -> None:
    storage = make_table(tmp_path)
    storage.put_if_absent(BACKUP_PATH, storage.read(PROPERTIES_PATH))
    storage.replace(PROPERTIES_PATH, b"hoodie.table.name=ord")
    assert load_properties(storage) == CONFIG.to_properties()


def test_a_torn_backup_never_hides_the_file(tmp_path: Path) -> None:
    storage = make_table(tmp_path)
    storage.put_if_absent(BACKUP_PATH, b"hoodie.table.name=ord")
    assert load_properties(storage) == CONFIG.to_properties()


def test_a_change_sets_and_removes_keys_and_leaves_no_backup(tmp_path: Path) -> None:
    storage = make_table(tmp_path)
    changed = update_properties(storage, {KEY: "true", "hoodie.table.format": None, "hoodie.table.name": "renamed"})
    assert changed[KEY] == "true"
    assert "hoodie.table.format" not in changed
    assert changed["hoodie.table.checksum"] != CONFIG.to_properties()["hoodie.table.checksum"]
    assert load_properties(storage) == changed
    assert not storage.exists(BACKUP_PATH)


def test_a_change_that_died_anywhere_leaves_the_old_or_the_new_keys_to_readers(tmp_path: Path) -> None:
    old = CONFIG.to_properties()
    new = {**old, KEY: "true"}
    counted = FaultyStorage(make_table(tmp_path / "unharmed"))
    update_properties(counted, {KEY: "true"})
    for call in range(len(counted.calls)):
        for fault in (Fault.KILL_BEFORE, Fault.KILL_AFTER):
            storage = make_table(tmp_path / f"{call}{fault.name}")
            with pytest.raises(Killed):
                update_properties(FaultyStorage(storage, {call: fault}), {KEY: "true"})
            assert load_properties(storage) in (old, new)
            assert update_properties(storage, {KEY: "true"}) == new
            assert not storage.exists(BACKUP_PATH)


def test_a_change_that_hudi_died_in_is_finished_before_the_next(tmp_path: Path) -> None:
    storage = make_table(tmp_path)
    storage.put_if_absent(BACKUP_PATH, storage.read(PROPERTIES_PATH))
    storage.delete(PROPERTIES_PATH)
    assert update_properties(storage, {KEY: "true"}) == {**CONFIG.to_properties(), KEY: "true"}
    assert not storage.exists(BACKUP_PATH)


FLIPS = (0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xFF)
REPLACED_BY = b"\n\r#!=: \\\t\0"


def _damaged(data: bytes, offset: int) -> Iterator[bytes]:
    """The file with one byte changed in several ways, and cut: at every eighth place, at each for LSM_ALL_FAULTS=1."""
    places = sample(range(len(data)), offset)
    for place in places:
        byte = data[place]
        for other in {byte ^ flip for flip in FLIPS} | set(REPLACED_BY) - {byte}:
            yield data[:place] + bytes([other]) + data[place + 1 :]
    for length in places:
        yield data[:length]


def _loaded(storage: LocalStorage, data: bytes) -> dict[str, str] | None:
    """The properties by a file of these bytes; None when it is refused by its name."""
    (Path(storage.uri.removeprefix("file://")) / PROPERTIES_PATH).write_bytes(data)
    try:
        found = load_properties(storage)
        TableConfig.from_properties(found, PROPERTIES_PATH)
    except (CorruptFileError, UnsupportedTable) as error:
        return None if PROPERTIES_PATH in str(error) else {"not named": str(error)}
    return found


@pytest.mark.parametrize("changed", [False, True], ids=["as-created", "after-a-change"])
def test_no_damage_of_one_byte_and_no_cut_changes_what_the_file_says(tmp_path: Path, changed: bool) -> None:
    storage = make_table(tmp_path)
    if changed:
        update_properties(storage, {KEY: "true", "hoodie.table.ordering.fields": "ts,n"})
    data, properties = storage.read(PROPERTIES_PATH), load_properties(storage)
    found = [_loaded(storage, damaged) for damaged in _damaged(data, 2 * changed)]
    assert all(each is None or each == properties for each in found)
    assert sum(each is None for each in found) > len(found) // 2
    assert _loaded(storage, data) == properties


def test_a_file_that_hudi_has_rewritten_since_is_read_without_a_checksum(tmp_path: Path) -> None:
    storage = make_table(tmp_path)
    rewritten = {**load_properties(storage), "hoodie.table.metadata.partitions": "files", "hoodie.new.in.2027": "x"}
    storage.replace(PROPERTIES_PATH, print_properties(rewritten, ["Updated at 2027-01-01T00:00:00Z"]))
    assert load_properties(storage) == rewritten
    assert update_properties(storage, {KEY: "true"}) == {**rewritten, KEY: "true"}
    assert storage.read(PROPERTIES_PATH).count(b"#lsm.checksum=") == 2


def test_a_file_changed_by_hand_is_refused_and_the_message_says_how_to_keep_the_change(tmp_path: Path) -> None:
    storage = make_table(tmp_path)
    data = storage.read(PROPERTIES_PATH).replace(b"cdc.enabled=false", b"cdc.enabled=true")
    storage.replace(PROPERTIES_PATH, data)
    with pytest.raises(CorruptFileError, match=r"hoodie\.properties.*remove its lines '#lsm\.checksum='"):
        load_properties(storage)
    lines = data.splitlines(keepends=True)
    storage.replace(PROPERTIES_PATH, b"".join(line for line in lines if b"lsm.checksum" not in line))
    assert load_properties(storage)[KEY] == "true"


def test_a_damaged_file_is_read_from_its_backup(tmp_path: Path) -> None:
    storage = make_table(tmp_path)
    storage.put_if_absent(BACKUP_PATH, storage.read(PROPERTIES_PATH))
    storage.replace(PROPERTIES_PATH, storage.read(PROPERTIES_PATH).replace(b"cdc.enabled=false", b"cdc.enabled=\\u0"))
    assert load_properties(storage) == CONFIG.to_properties()


@pytest.mark.parametrize("damage", ["X", "=", "\n"])
def test_a_damaged_key_of_a_file_without_checksum_is_refused_by_name(tmp_path: Path, damage: str) -> None:
    storage = make_table(tmp_path)
    properties = {**CONFIG.to_properties(), "hoodie.table.ordering.fields": "ts"}
    data = print_properties(properties)
    separator = len("hoodie.table.ordering.fields")
    for place in range(len("hoodie.") + 1, separator + (damage != "\n")):
        begin = data.index(b"hoodie.table.ordering.fields=ts") + place
        damaged = data[:begin] + damage.encode() + data[begin + 1 :]
        if damaged != data:
            assert _loaded(storage, damaged) is None, damaged[begin - place :][:40]


def test_properties_that_no_table_has_room_for_are_refused_unread(tmp_path: Path) -> None:
    storage = make_table(tmp_path)
    with (tmp_path / PROPERTIES_PATH).open("ab") as file:
        file.truncate(200 << 20)
    with pytest.raises(CorruptFileError, match=r"hoodie\.properties: 209715200 bytes"):
        load_properties(storage)
