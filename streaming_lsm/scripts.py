"""End the command line and the jobs with one line on standard error and an exit status."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from streaming_lsm.extras import missing_package

INTERRUPTED = 130
"""Exit status after Ctrl-C: 128 plus the number of SIGINT, as in shells."""


def fail(program: str, reason: object, status: int) -> int:
    """Print the reason why a program ends to standard error, and return its exit status."""
    print(f"{program}: {reason}", file=sys.stderr)
    return status


@contextmanager
def importing(program: str) -> Iterator[None]:
    """Turn failures of a program's imports into one line and an exit status. With Spark the imports take a second.

    Raises:
        SystemExit: an optional package is not installed (2), or Ctrl-C was pressed (130).
    """
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(fail(program, "interrupted", INTERRUPTED)) from None
    except ModuleNotFoundError as error:
        missing = missing_package(program, error)
        if missing is error:
            raise
        raise SystemExit(fail(program, missing, 2)) from None
