"""Name the message whose schema is at fault."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from streaming_lsm.arrow.columns import Int64s
from streaming_lsm.errors import LsmError


class SchemaFault(Exception):
    """Reports a message whose schema cannot be had, or does not fit the table.

    Attributes:
        place: position of the message.
        error: the reason.
    """

    def __init__(self, place: int, error: LsmError) -> None:
        """Report the message at `place`."""
        super().__init__(str(error))
        self.place, self.error = place, error


@contextmanager
def placed_at(places: Int64s) -> Iterator[None]:
    """Report faults by the positions that the messages of the context have elsewhere, int64."""
    try:
        yield
    except SchemaFault as fault:
        raise SchemaFault(int(places[fault.place]), fault.error) from fault.error
