"""Tell what a scan reads and what it skips, and by what."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

from streaming_lsm.file_group.data_file import MAX_OPEN_FILES
from streaming_lsm.query.prune.file_groups import SkippedSlices
from streaming_lsm.query.prune.row_groups import RowGroupCounts


@dataclass(frozen=True)
class Explanation:
    """Counts what a scan or a look-up reads and skips; printed, it has a line for each kind of thing.

    Attributes:
        slices: file slices of which footers are read.
        skipped: file slices and partitions of which none is.
        counts: files and row groups of `slices`.
    """

    slices: int
    skipped: SkippedSlices
    counts: RowGroupCounts

    def as_dict(self) -> dict[str, object]:
        """Return all numbers by name."""
        return {"file_slices": self.slices, "skipped": asdict(self.skipped), "row_groups": asdict(self.counts)}

    def lines(self) -> Iterator[str]:
        """Yield the lines of the text."""
        skipped, counts = self.skipped, self.counts
        whole = self.slices + skipped.by_partition + skipped.by_bucket
        whole += skipped.by_record_index + skipped.by_secondary_index
        whole += skipped.by_ranges + skipped.by_partition_ranges + skipped.by_expression_index
        partitions = skipped.partitions + skipped.partitions_read
        if partitions:
            yield _line("partitions", partitions, ("by partition columns", skipped.partitions))
        yield _line(
            "file slices",
            whole,
            ("by partition columns", skipped.by_partition),
            ("by bucket", skipped.by_bucket),
            ("by record_index", skipped.by_record_index),
            (f"by {skipped.secondary_index}", skipped.by_secondary_index),
            ("by partition_stats", skipped.by_partition_ranges),
            (f"by {', '.join(skipped.expression_indexes)}", skipped.by_expression_index),
            ("by column_stats", skipped.by_ranges),
        )
        yield _line(
            "files",
            counts.files + counts.unopened,
            ("by keys and statistics", counts.files_skipped),
            ("by the key entries of newer logs", counts.unopened),
        )
        yield _line(
            "row groups",
            counts.row_groups,
            ("by key range", counts.by_key),
            ("by bloom filters", counts.by_bloom),
            ("by statistics", counts.by_values),
        )
        if counts.whole_slices:
            why = f"merged by hash, or of {MAX_OPEN_FILES} files or more"
            yield f"file slices read whole: {counts.whole_slices:,} ({why})"
        name = "inline log" if counts.inline_logs == 1 else "inline logs"
        logs = f", and those of {counts.inline_logs:,} {name}, read whole" if counts.inline_logs else ""
        yield f"rows to merge: {counts.rows:,}{logs}"

    def __str__(self) -> str:
        return "\n".join(self.lines())


def _line(name: str, count: int, *reasons: tuple[str, int]) -> str:
    left = count - sum(number for _, number in reasons)
    said = ", ".join(f"{number:,} skipped {reason}" for reason, number in reasons if number)
    return f"{name}: {left:,} of {count:,} read" + (f"; {said}" if said else "")
