"""Translate failures of the operating system, Arrow and the interpreter into errors of this package.

Inside the package failures are raised as they are, because `FileNotFoundError` and `FileExistsError` are part of the
storage contract. Every public call translates the failures that leave the package into `streaming_lsm.errors`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

import pyarrow as pa

from streaming_lsm.errors import CorruptFileError, LsmError, SchemaError, StorageError

P = ParamSpec("P")
R = TypeVar("R")

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_MORE_FILES = (errno.EMFILE, errno.ENFILE)
_PASSING = (errno.EACCES, errno.EPERM, errno.EIO, errno.ENOMEM, errno.ESTALE, errno.ETIMEDOUT, errno.EINTR)
_ADVICE = {
    **dict.fromkeys(_NO_ROOM, "free some room, then try again"),
    **dict.fromkeys(_NO_MORE_FILES, "raise the limit on open files (ulimit -n), then try again"),
    **dict.fromkeys((errno.EACCES, errno.EPERM), "let this process read and write there, then try again"),
    errno.EROFS: "make it writable, or give another path",
    errno.ENAMETOOLONG: "give a shorter path",
    errno.ELOOP: "replace the symbolic link, which points to itself",
    errno.ENOENT: "the file was deleted while it was in use; try again, and restore it if it is still missing",
}


def no_room(error: OSError) -> bool:
    """Return whether a write failed because the disk, a quota or a limit on file sizes is exhausted."""
    return error.errno in _NO_ROOM


def no_more_files(error: OSError) -> bool:
    """Return whether the limit on open files, of the process or of the machine, is reached."""
    return error.errno in _NO_MORE_FILES


def is_unreadable(error: OSError) -> bool:
    """Return whether a read failed for a reason other than the content: access, disk, memory or network."""
    return error.errno in _PASSING


@contextmanager
def named_failures() -> Iterator[None]:
    """Raise failures as errors of this package, which name the file and the remedy.

    Raises:
        StorageError: the system refused a call: no space, no access, a path that cannot be resolved, no memory.
        CorruptFileError: a schema or file is nested more deeply than the interpreter's recursion limit.
        SchemaError: Arrow has no conversion or computation for the types or values of a column.
    """
    try:
        yield
    except (LsmError, BrokenPipeError):
        raise
    except OSError as error:
        raise _refused(error) from error
    except MemoryError as error:
        raise StorageError(f"there is not enough memory: {error}; give the process more, or read less") from error
    except RecursionError as error:
        raise CorruptFileError(f"a schema or a file is nested too deeply to be read: {error}; restore it") from error
    except (pa.ArrowTypeError, pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError) as error:
        raise SchemaError(f"a column has a type or a value that does not fit here: {error}; cast it first") from error


def names_failures(call: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public function or method: raise its failures as errors of this package, see `named_failures`."""

    @wraps(call)
    def named(*args: P.args, **kwargs: P.kwargs) -> R:
        with named_failures():
            return call(*args, **kwargs)

    return named


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Add the path to failures that do not name a file, such as those of writing to an open file."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = path
        raise


def _refused(error: OSError) -> StorageError:
    names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
    where = f"{' -> '.join(names)}: " if names else ""
    what = error.strerror or str(error)
    return StorageError(f"{where}{what}: {_ADVICE.get(error.errno or 0, 'check the disk or the network')}")
