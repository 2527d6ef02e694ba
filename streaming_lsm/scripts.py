"""End the command line and the jobs with one line on standard error and an exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from streaming_lsm.errors import ConfigError
from streaming_lsm.extras import missing_package

_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Environment variable by which spark-submit tells Python the port of Spark's Java process."""
INTERRUPTED = 130
"""Exit status after Ctrl-C: 128 plus the number of SIGINT, as in shells."""


def fail(program: str, reason: object, status: int) -> int:
    """Print the reason why a program ends to standard error, and return its exit status."""
    print(f"{program}: {reason}", file=sys.stderr)
    return status


def key_values(texts: Iterable[str]) -> dict[str, str]:
    """Parse the options ``KEY=VALUE`` of a command line.

    Raises:
        ConfigError: one has no value.
    """
    pairs = [text.partition("=") for text in texts]
    for key, equals, _ in pairs:
        if not equals:
            raise ConfigError(f"option {key!r} has no value: write KEY=VALUE")
    return {key.strip(): value for key, _, value in pairs}


def is_submitted(environment: Mapping[str, str] | None = None) -> bool:
    """Return whether spark-submit started this process.

    Args:
        environment: environment variables; those of the process when not given.
    """
    return _SUBMITTED in (os.environ if environment is None else environment)


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
