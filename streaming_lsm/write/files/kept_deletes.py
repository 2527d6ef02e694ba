"""Keep the deletes of a full compaction in delete logs beside its base file, so that rows that come late stay deleted.

A kept delete has an ordering value, and is the newest record of its key. Its time is the instant of the log that held
it. Each file says the time of its newest delete only, so that a file holds the deletes of one period: half of the
retention, aligned to the epoch, so that a delete stays in its period in all later compactions.
See docs/format/06-services.md, "Kept deletes".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import pairwise
from types import TracebackType

import pyarrow as pa

from streaming_lsm.arrow.columns import pc
from streaming_lsm.format.actions.commit import WriteStat
from streaming_lsm.format.log.native_footer import UNTIL_KEY
from streaming_lsm.format.table.file_names import LogKind
from streaming_lsm.schema import COMMIT_TIME
from streaming_lsm.timeline.clock import instant_ms, instant_text
from streaming_lsm.write.files.native_log_writer import NativeLogTarget, OpenNativeLog

_LATER = "~"


@dataclass(frozen=True)
class Retention:
    """Which deletes a compaction keeps.

    Attributes:
        instant: of the compaction, the time of deletes that do not say theirs.
        begins: instant times, ascending: deletes before the first are dropped, and those from each one to the next are
            kept in one file.
    """

    instant: str
    begins: tuple[str, ...]

    @staticmethod
    def of(instant: str, seconds: int, zone: str) -> Retention | None:
        """Keep deletes that are younger than some seconds at an instant, half as long more at most; None for 0.

        Args:
            instant: requested time of the compaction.
            seconds: the retention.
            zone: ``UTC`` or ``LOCAL``, the table's zone.
        """
        if not seconds:
            return None
        now, period = instant_ms(instant, zone), seconds * 500
        oldest = max(0, now - 2 * period)
        begins = [oldest, *range(oldest - oldest % period + period, now + 1, period)]
        return Retention(instant, tuple(sorted(instant_text(begin, zone) for begin in begins)))

    @property
    def of_all(self) -> Retention:
        """The same periods, and one more of all older deletes: a log compaction drops none."""
        return replace(self, begins=("", *self.begins))

    def by_period(self, deletes: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        """Split deletes, with their times, by the number of their period; those that are too old are left out."""
        place = deletes.schema.get_field_index(COMMIT_TIME)
        times = pc.fill_null(deletes.column(COMMIT_TIME), self.instant)
        deletes = deletes.set_column(place, deletes.schema.field(place), times)
        for number, (begin, end) in enumerate(pairwise([*self.begins, _LATER])):
            found = deletes.filter(pc.and_(pc.greater_equal(times, begin), pc.less(times, end)))
            if found.num_rows:
                yield number, found


class KeptDeletesWriter:
    """Writes the deletes that one file group keeps, a file for each period; leaving it unfinished deletes the files."""

    def __init__(self, target: NativeLogTarget, schema: pa.Schema, retention: Retention) -> None:
        """Create a writer without open files.

        Args:
            target: what the files have in common.
            schema: the columns of a delete log.
            retention: chooses what is kept.
        """
        self._target, self._schema, self._retention = target, schema, retention
        self._logs: dict[int, OpenNativeLog] = {}
        self._until: dict[int, str] = {}
        self._files = ExitStack()

    def __enter__(self) -> KeptDeletesWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.__exit__(kind, error, trace)

    def append(self, deletes: pa.Table) -> None:
        """Add deletes with their times; their keys are larger than those of all before."""
        for period, found in self._retention.by_period(deletes):
            if period not in self._logs:
                self._logs[period] = self._target.open(len(self._logs) + 1, LogKind.DELETES)
                self._files.enter_context(self._logs[period].file)
            self._logs[period].append(found.select(self._schema.names).cast(self._schema))
            newest = str(pc.max(found.column(COMMIT_TIME)).as_py())
            self._until[period] = max(self._until.get(period, ""), newest)

    def finish(self) -> Iterator[WriteStat]:
        """Make the files durable, in the order of their versions."""
        for period, log in self._logs.items():
            yield replace(log, footer={**log.footer, UNTIL_KEY: self._until[period]}).finish()
        self._files.close()
