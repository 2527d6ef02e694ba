"""How the command line and the jobs end: one line on standard error, and an exit status."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from streaming_lsm.extras import missing_package

INTERRUPTED = 130
"""Exit status after Ctrl-C: 128 and the number of SIGINT, as shells have it."""


def fail(program: str, reason: object, status: int) -> int:
    """Print why a program ends, as one line or paragraph, and return its exit status."""
    print(f"{program}: {reason}", file=sys.stderr)
    return status


@contextmanager
def importing(program: str) -> Iterator[None]:
    """Guard the imports of a program, which take a second where Spark is among them.

    Raises:
        SystemExit: an optional package is not installed (2), or Ctrl-C was pressed (130); one line says so.
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
