"""Keep the names that columns had, so that none is given to another one: older files still have values under the name.

Each commit of this package has all of them in its extra metadata, as long as there are any (docs/format/02-timeline.md,
"Dropped columns").
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from streaming_lsm.bounded_json import parse_json
from streaming_lsm.errors import CorruptFileError
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.batch_ledger import with_ledger

DROPPED_KEY = "lsm.dropped.columns"


def dropped_columns(timeline: Timeline) -> frozenset[str]:
    """Return the full names of columns that were dropped or renamed, by the newest commit of this package.

    Raises:
        CorruptFileError: the commit's list of names cannot be read.
    """
    write = with_ledger(timeline, timeline.newest_first())
    text = None if write is None else timeline.read_commit(write).extra.get(DROPPED_KEY)
    if write is None or text is None:
        return frozenset()
    try:
        names = parse_json(text)
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("expected a list of names")
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(f"{write.path}: {DROPPED_KEY}={text:.200}: {error}; restore the file") from None
    return frozenset(names)


def dropped_entry(names: Iterable[str]) -> Mapping[str, str]:
    """Return the entry of the extra metadata; none without names."""
    found = sorted(names)
    return {DROPPED_KEY: json.dumps(found, separators=(",", ":"))} if found else {}
