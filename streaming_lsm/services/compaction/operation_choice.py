"""Choose what a compaction does with one file slice: merge it into a base file, merge some logs, or nothing.

A *sorted run* here is what one instant wrote to a file group: its log files together. Runs are in merge order; those
that a log compaction replaced are left out. See docs/format/06-services.md, "Log compaction", "Hybrid compaction".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from streaming_lsm import config
from streaming_lsm.config import Options
from streaming_lsm.errors import ConfigError
from streaming_lsm.format.actions.compaction_plan import FULL, LOG
from streaming_lsm.services.compaction.trigger import TIME_ELAPSED

HYBRID = "HybridCompactionPlanGenerator"
_MB = 1 << 20
_PARTIAL = "logs with partial rows, which only a merge with the base file fills"


@dataclass(frozen=True, slots=True)
class LogRun:
    """The log files that one instant wrote to a file group.

    Attributes:
        instant: its requested time.
        names: file names, ascending.
        size: bytes of all files.
        is_inline: whether one of them is an inline log.
    """

    instant: str
    names: tuple[str, ...]
    size: int
    is_inline: bool = False


@dataclass(frozen=True, slots=True)
class SliceSizes:
    """What a choice depends on.

    Attributes:
        base_bytes: size of the base file; None without one.
        log_bytes: size of all logs, those that a log compaction replaced included.
        log_runs: number of instants that wrote logs, those replaced included.
        log_files: number of all logs, those replaced included.
    """

    base_bytes: int | None
    log_bytes: int
    log_runs: int
    log_files: int


@dataclass(frozen=True, slots=True)
class Choice:
    """What is done with a slice, and why.

    Attributes:
        type: `FULL`, `LOG`, or None for nothing.
        reason: for operators.
        runs: the runs that a LOG operation merges, in merge order.
    """

    type: str | None
    reason: str
    runs: tuple[LogRun, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class LiveRuns:
    """The sorted runs of a slice that no log compaction replaced.

    Attributes:
        runs: in merge order.
        partial: whether a log has partial rows, which only a merge with the base file can fill.
    """

    runs: tuple[LogRun, ...]
    partial: bool = False


class Runs(Protocol):
    """Returns the live runs of a slice; only called where the choice depends on them."""

    def __call__(self) -> LiveRuns:
        """Read what is needed."""
        ...


class Chooser(Protocol):
    """Chooses by the sizes of a slice, which has logs."""

    def __call__(self, sizes: SliceSizes, runs: Runs) -> Choice:
        """Choose."""
        ...


def full_always(sizes: SliceSizes, runs: Runs) -> Choice:
    """Merge every slice into a base file, as a plan without types does."""
    del runs
    return Choice(FULL, f"{_counted(sizes.log_runs)} to merge into a base file")


@dataclass(frozen=True)
class LogCompactionRules:
    """Choose LOG operations, for log compactions of their own action.

    Attributes:
        min_runs: fewest live runs that are merged.
        before: instants from here on are left out: a write that is still pending may come between them and older ones.
        writes_native: whether new logs are native. Then inline ones, of before an upgrade, are left to FULL operations,
            as they merge with the base file by another rule (docs/format/05-merge.md, "Pairwise rule").
    """

    min_runs: int
    before: str
    writes_native: bool = True

    def __call__(self, sizes: SliceSizes, runs: Runs) -> Choice:
        """Merge all live runs if there are enough."""
        if sizes.log_runs < self.min_runs:
            return Choice(None, f"{_counted(sizes.log_runs)}, log compaction begins at {self.min_runs}")
        found = runs()
        if found.partial:
            return Choice(None, _PARTIAL)
        live = found.runs
        window = mergeable(live, self.before, writes_native=self.writes_native)
        if len(live) < self.min_runs or len(window) < 2:
            return Choice(None, _unsettled(live, window, self.min_runs))
        return Choice(LOG, f"{len(window)} of {_counted(len(live))} into one", window)


@dataclass(frozen=True)
class HybridRules:
    """Choose FULL or LOG by the table of RFC-103.

    Attributes:
        small_base_bytes: a base file below this size is rewritten.
        log_share: logs of more than this share of the base file are merged into it.
        min_runs: fewest live runs for which a LOG operation pays.
        max_runs: most live runs that may be left when the next compaction is due.
        reserve: runs that come until then.
        max_files: most log files that may be left. Replaced ones, which no LOG operation removes, take room in listings
            and plans, and in the footers that say what was replaced.
        before, writes_native: as in `LogCompactionRules`.
    """

    small_base_bytes: int
    log_share: float
    min_runs: int
    max_runs: int
    reserve: int
    max_files: int
    before: str
    writes_native: bool = True

    @staticmethod
    def of(options: Options, before: str, *, writes_native: bool) -> HybridRules:
        """Read the rules from the options; raises as `check_hybrid`."""
        check_hybrid(options)
        return HybridRules(
            options[config.COMPACTION_SMALL_BASE],
            options[config.COMPACTION_LOG_SHARE],
            options[config.LOG_COMPACTION_BLOCKS],
            options[config.COMPACTION_MAX_RUNS],
            options[config.COMPACT_COMMITS],
            options[config.COMPACTION_MAX_FILES],
            before,
            writes_native,
        )

    @property
    def allowed(self) -> int:
        """Live runs that may be left now."""
        return max(1, self.max_runs - self.reserve)

    def __call__(self, sizes: SliceSizes, runs: Runs) -> Choice:
        """Choose for one slice."""
        if sizes.base_bytes is None:
            return Choice(FULL, "no base file")
        if sizes.base_bytes < self.small_base_bytes:
            return Choice(FULL, f"a base file of {_mb(sizes.base_bytes)}, small below {_mb(self.small_base_bytes)}")
        share = sizes.log_bytes / sizes.base_bytes
        if share > self.log_share:
            return Choice(FULL, f"logs of {share:.0%} of the base file, more than {self.log_share:.0%}")
        if sizes.log_files > self.max_files:
            return Choice(FULL, f"{sizes.log_files} log files, replaced ones included, more than {self.max_files}")
        few = min(self.min_runs - 1, self.allowed)
        if sizes.log_runs <= few:
            return Choice(None, f"{_counted(sizes.log_runs)}, {share:.0%} of the base file: nothing is due")
        found = runs()
        if found.partial:
            return Choice(FULL, _PARTIAL)
        live = found.runs
        window = mergeable(live, self.before, writes_native=self.writes_native)
        if len(live) <= few or len(window) < 2:
            return Choice(None, _unsettled(live, window, few + 1))
        merged = self._newest(live, window)
        if len(merged) < 2:
            return Choice(None, f"{_counted(len(live))}, each much larger than all newer ones together")
        return Choice(LOG, f"the newest {len(merged)} of {_counted(len(live))} into one", merged)

    def _newest(self, live: Sequence[LogRun], window: Sequence[LogRun]) -> tuple[LogRun, ...]:
        """Choose the newest runs of similar size, and as many more as bring the number of runs down to `allowed`.

        A run is taken if all newer ones together are as large, so that each record is merged again only when its run
        has at least doubled: a record takes part in a number of merges that grows with the logarithm of the runs.
        """
        least = len(live) - self.allowed + 1 if len(live) > self.allowed else 0
        taken, size = 0, 0
        for run in reversed(window):
            if taken >= max(least, 1) and run.size > size:
                break
            taken, size = taken + 1, size + run.size
        return tuple(window[len(window) - taken :])


def check_hybrid(options: Options) -> None:
    """Check that the options of a hybrid plan can hold together.

    A LOG operation leaves at least one sorted run, and each commit until the next compaction adds one. A compaction
    that is due by time alone comes after a number of commits that no option says.

    Raises:
        ConfigError: more sorted runs come between two compactions than there may be.
    """
    if options[config.COMPACTION_GENERATOR] != HYBRID or options[config.COMPACT_TRIGGER] == TIME_ELAPSED:
        return
    most, commits = options[config.COMPACTION_MAX_RUNS], options[config.COMPACT_COMMITS]
    if most <= commits:
        raise ConfigError(
            f"{config.COMPACTION_MAX_RUNS.key}={most} is not more than {config.COMPACT_COMMITS.key}={commits}, the "
            "commits between two compactions, each of which adds a sorted run to the one that a compaction leaves: "
            "raise it, or compact after fewer commits"
        )


def mergeable(live: Sequence[LogRun], before: str, *, writes_native: bool) -> tuple[LogRun, ...]:
    """Return the runs up to the first one at or after an instant: no run will come between them any more.

    Args:
        writes_native: whether to begin after the last inline log.
    """
    end = next((place for place, run in enumerate(live) if run.instant >= before), len(live))
    inline = [place for place, run in enumerate(live[:end]) if run.is_inline and writes_native]
    return tuple(live[inline[-1] + 1 if inline else 0 : end])


def _unsettled(live: Sequence[LogRun], window: Sequence[LogRun], wanted: int) -> str:
    if len(live) >= wanted > len(window):
        return f"{_counted(len(live))}, of which {len(live) - len(window)} wait for a pending write or are inline logs"
    return f"{_counted(len(live))}, merged from {wanted} on"


def _counted(runs: int) -> str:
    return f"{runs} sorted run" + ("" if runs == 1 else "s")


def _mb(size: int) -> str:
    return f"{size / _MB:,.1f} MiB"
