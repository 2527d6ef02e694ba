"""Let Spark tell an error of this package in one line: by default its Python workers send the whole traceback."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

from streaming_lsm.errors import LsmError
from streaming_lsm.storage.failures import named_failures

P = ParamSpec("P")
R = TypeVar("R")
_HIDES = "SPARK_HIDE_TRACEBACK"
"""The variable that Spark's Python workers read when they report an error."""


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """Raise failures as errors of this package, see `named_failures`; in a worker of Spark they end its task.

    Errors of others keep their traceback, which shows what failed.
    """
    try:
        with named_failures():
            yield
    except LsmError:
        os.environ[_HIDES] = "1"
        raise


def tells_in_one_line(call: Callable[P, R]) -> Callable[P, R]:
    """Decorate what Spark calls in a Python worker; see `told_in_one_line`."""

    @wraps(call)
    def told(*args: P.args, **kwargs: P.kwargs) -> R:
        with told_in_one_line():
            return call(*args, **kwargs)

    return told
