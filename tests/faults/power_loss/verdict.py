"""Say of what a power loss left whether every promise is kept: open the table, recover it, go on writing.

The promises: what was acknowledged is there as a whole; what was not is there as a whole or not at all, also for a
reader that comes before the next writer; the interrupted call can be made again, and takes effect once; another writer
can write; nothing is left over.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from streaming_lsm import LsmTable
from streaming_lsm.errors import LsmError
from streaming_lsm.timeline.instant import Instant
from tests.faults.power_loss.disk import write_tree
from tests.faults.power_loss.losses import Loss
from tests.faults.power_loss.operations import Returned
from tests.faults.power_loss.recorder import Recording
from tests.faults.power_loss.scenarios import EXTRA, Scenario, Seen, opened, seen_rows, write_extra
from tests.oracle.reader import read_snapshot
from tests.oracle.validator import validate
from tests.support.metadata_tables import assert_agrees

ORACLE_VERSION = 10
"""The table version that the oracle reads."""


class Violation(AssertionError):
    """A promise that a power loss breaks."""


@dataclass(frozen=True)
class Judge:
    """Judges the losses of one recording.

    Attributes:
        scenario: what was recorded.
        acknowledged: the instants that were returned, call by call.
        actions: how many completed instants of each action there are when all calls have returned.
    """

    scenario: Scenario
    acknowledged: Sequence[object]
    actions: Counter[str]

    @classmethod
    def of(cls, scenario: Scenario, recording: Recording, lake: Path) -> Judge:
        """The judge of a recording, and of the lake where it was made."""
        returned = [operation.value for operation in recording.operations if isinstance(operation, Returned)]
        return cls(scenario, returned, _actions(opened(lake, scenario.options)))

    def judge(self, loss: Loss, lake: Path, *, replayed_first: bool = True) -> None:
        """Build the lake that is left, go on with it, and delete it.

        Args:
            lake: the folder that was recorded, which is gone: plans have its path.
            replayed_first: whether the interrupted call is made again by the next writer, or by the one after it.

        Raises:
            Violation: a promise is broken.
        """
        write_tree(lake, loss.tree)
        try:
            self._judge(lake, loss.returned, replayed_first=replayed_first)
        except (AssertionError, LsmError, OSError) as error:
            raise Violation(f"{type(error).__name__}: {error}\n{loss.what}") from error
        finally:
            shutil.rmtree(lake)

    def _judge(self, lake: Path, returned: int, *, replayed_first: bool) -> None:
        before, after = (self.scenario.expected(min(returned + n, len(self.scenario.calls))) for n in (0, 1))
        found = self._read_by_both(lake)
        assert found in (before, after), f"a reader sees {found}, not {before} or {after}"
        self._check_acknowledged(lake, returned)
        extra: list[tuple[str, str, int, int]] = []
        if not replayed_first and found is not None:
            write_extra(lake, self.scenario.options)
            extra = [EXTRA]
            possible = [after] if found == after else [before, after]
            shown = self._read(lake)
            assert shown in [_with(rows, extra) for rows in possible], f"after another write a reader sees {shown}"
        for number, call in enumerate(self.scenario.calls[returned:], returned + 1):
            call.run(lake)
            assert self._read(lake) == _with(self.scenario.expected(number), extra), "the call was made again"
        if not extra:
            write_extra(lake, self.scenario.options)
        assert self._read_by_both(lake) == _with(self.scenario.expected(len(self.scenario.calls)), [EXTRA])
        # After the row of the other writer there may be more to compact.
        self._check_settled(lake, counts_services=self.scenario.counts_services and not extra)

    def _read(self, lake: Path) -> Seen:
        return seen_rows(lake, self.scenario.options)

    def _read_by_both(self, lake: Path) -> Seen:
        """What two readers see alike; the other one takes most of the time of a trial."""
        found = self._read(lake)
        if found is not None and self._is_known_to_oracle(lake):
            columns = opened(lake, self.scenario.options).schema.names  # an empty table has none for the oracle
            other = [tuple(row[name] for name in columns) for row in read_snapshot(lake / "table").to_pylist()]
            assert sorted(other) == found, f"another reader sees {sorted(other)}, not {found}"
        return found

    def _is_known_to_oracle(self, lake: Path) -> bool:
        return opened(lake, self.scenario.options).config.version == ORACLE_VERSION

    def _check_acknowledged(self, lake: Path, returned: int) -> None:
        for value in self.acknowledged[:returned]:
            if isinstance(value, Instant):
                assert value in opened(lake, self.scenario.options).timeline.instants, f"acknowledged {value} is lost"

    def _check_settled(self, lake: Path, *, counts_services: bool) -> None:
        table = opened(lake, self.scenario.options)
        write = "commit" if table.config.is_copy_on_write else "deltacommit"
        actions, expected = _actions(table), self.actions + Counter([write])
        assert actions[write] == expected[write], f"completed: {actions}, not {expected}"
        assert actions == expected or not counts_services, f"completed: {actions}, not {expected}"
        assert_agrees(lake / "table")
        violations = validate(lake / "table") if self._is_known_to_oracle(lake) else []
        assert violations == [], violations
        left = [str(path.relative_to(lake)) for path in lake.rglob("*.lsm-tmp")]
        assert left == [], f"left over: {left}"


def _with(rows: Seen, extra: Sequence[tuple[str, str, int, int]]) -> Seen:
    return sorted([*(rows or []), *extra])


def _actions(table: LsmTable) -> Counter[str]:
    done = (instant for instant in table.timeline.instants if instant.is_completed and instant.action != "rollback")
    # An action that is archived, and whose files are not deleted yet, counts once.
    return Counter(instant.action for instant in {*done, *table.timeline.every_write})
