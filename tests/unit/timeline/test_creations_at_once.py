"""Two processes create tables at once, at one path or one above the other: at most one of nested tables is created.

Each creation is a thread that stops before a numbered storage call; looks at folders above count as calls, too.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TypeVar

import pytest

from streaming_lsm import LsmTable
from streaming_lsm.config import resolve
from streaming_lsm.errors import ConfigError, TableNotFound
from streaming_lsm.storage.base import Storage
from streaming_lsm.storage.local import LocalStorage
from streaming_lsm.storage.uris import open_storage
from streaming_lsm.table_options import create_table
from streaming_lsm.timeline.properties_file import PROPERTIES_PATH
from tests.support.faulty_storage import Fault, FaultyStorage, Killed
from tests.support.small_tables import OPTIONS, SCHEMA, create, rows, shown

T = TypeVar("T")
PATIENCE_S = 60
WORKER = threading.local()
PAIRS = {"above first": ("a", "a/b/c"), "below first": ("a/b/c", "a"), "same path": ("a", "a")}
ROW = ("k", "nl", 1, 1)
REFUSALS = r"try again|lies in the table|there is a table at .* (below|already)"


class Steps:
    """Counts the storage calls of one creation, and stops it before one of them until `go_on`."""

    def __init__(self, stop_at: int | None) -> None:
        self.made, self._stop_at = 0, stop_at
        self.has_stopped, self.let_go = threading.Event(), threading.Event()

    def take(self) -> None:
        """Called before each storage call."""
        if self.made == self._stop_at:
            self.has_stopped.set()
            assert self.let_go.wait(PATIENCE_S)
        self.made += 1


class Stepping(FaultyStorage):
    """Counts its calls in the steps of a creation."""

    def __init__(self, inner: Storage, steps: Steps) -> None:
        super().__init__(inner)
        self._steps = steps

    def _call(self, name: str, path: str, effect: Callable[[], T]) -> T:
        self._steps.take()
        return super()._call(name, path, effect)


class Creation:
    """One process that creates a table, stopped before the call of a number.

    Attributes:
        error: what the creation raised.
        has_ended: whether it was never stopped, or goes on no more.
    """

    def __init__(self, path: Path, stop_at: int | None = None) -> None:
        self.path, self.steps = path, Steps(stop_at)
        self.error: BaseException | None = None
        self.has_ended = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self.steps.has_stopped.wait(PATIENCE_S)

    def _run(self) -> None:
        WORKER.steps = self.steps
        try:
            create_table(Stepping(LocalStorage(self.path), self.steps), resolve(OPTIONS), SCHEMA)
        except BaseException as error:
            self.error = error
        finally:
            self.has_ended = True
            self.steps.has_stopped.set()

    def go_on(self) -> None:
        """Let it run to its end."""
        self.steps.let_go.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


@pytest.fixture(autouse=True)
def counted_looks_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Count looks at folders above, inside the test's own folder."""

    def opened(uri: str) -> Storage:
        inside = uri.startswith(tmp_path.as_uri() + "/") and hasattr(WORKER, "steps")
        return Stepping(open_storage(uri), WORKER.steps) if inside else open_storage(uri)

    monkeypatch.setattr("streaming_lsm.timeline.table_place.open_storage", opened)


def is_table(path: Path) -> bool:
    """Whether there is a whole table."""
    try:
        return bool(LsmTable(path).config.record_key_fields)
    except TableNotFound:
        return False


def check_outcome(first: Creation, second: Creation) -> list[Path]:
    """The table that exists, if any: its creator succeeded, and the other was refused by name and left nothing."""
    done = sorted(creation.path for creation in (first, second) if creation.error is None)
    for creation in (first, second):
        if creation.error is not None:
            assert isinstance(creation.error, ConfigError), creation.error
            assert re.search(REFUSALS, str(creation.error))
    paths = {first.path, second.path}
    assert [path for path in sorted(paths) if is_table(path)] == done
    assert len(done) == 1 or (not done and len(paths) == 2)
    assert not any((path / ".hoodie").exists() for path in paths if path not in done), "no creation would succeed"
    return done


@pytest.mark.parametrize("pair", PAIRS)
def test_of_two_creations_one_stopped_anywhere_at_most_one_succeeds(tmp_path: Path, pair: str) -> None:
    one, other = PAIRS[pair]
    for number in count():
        stopped = Creation(tmp_path / str(number) / one, number)
        if stopped.has_ended:
            break
        second = Creation(tmp_path / str(number) / other)
        stopped.go_on()
        for path in check_outcome(stopped, second):
            table = LsmTable(path)
            table.upsert(rows(ROW))
            assert shown(table) == [ROW]
    assert number > 8


@pytest.mark.parametrize("pair", PAIRS)
def test_of_two_creations_both_stopped_anywhere_at_most_one_succeeds(tmp_path: Path, pair: str) -> None:
    one, other = PAIRS[pair]
    for number in count():
        for later in count(number % 3, 3):
            root = tmp_path / f"{number}-{later}"
            first = Creation(root / one, number)
            second = Creation(root / other, later)
            ended = first.has_ended, second.has_ended
            first.go_on()
            second.go_on()
            check_outcome(first, second)
            if ended[1]:
                break
        if ended[0]:
            break
    assert number > 8


@pytest.mark.parametrize("pair", PAIRS)
def test_a_creation_that_died_anywhere_is_repeated_and_keeps_nested_tables_away(tmp_path: Path, pair: str) -> None:
    one, other = PAIRS[pair]
    for number in count():
        root = tmp_path / str(number)
        dying = FaultyStorage(LocalStorage(root / one), {number: Fault.KILL_BEFORE})
        try:
            create_table(dying, resolve(OPTIONS), SCHEMA)
            break
        except Killed:
            pass
        with suppress(ConfigError):
            create(root / other)
        if one != other and is_table(root / other):
            with pytest.raises(ConfigError, match=r"lies in the table|there is a table at .* below"):
                create(root / one)
        else:
            with suppress(ConfigError):
                create(root / one)
            assert is_table(root / one)
    assert number > 10


def test_an_unfinished_table_is_no_table_and_is_named(tmp_path: Path) -> None:
    stopped = Creation(tmp_path / "a", 9)
    assert (tmp_path / "a" / PROPERTIES_PATH).exists()

    with pytest.raises(TableNotFound, match=r"is no table: it has no .hoodie/hoodie.properties"):
        LsmTable(tmp_path / "a")
    with pytest.raises(
        ConfigError, match=r"a table is being created at file://.*/a, .*: try again; .* remove .*/a/.hoodie"
    ):
        create(tmp_path / "a/b")
    stopped.go_on()
    assert is_table(tmp_path / "a")
