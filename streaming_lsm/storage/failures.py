"""Failures of the operating system that say nothing about a file's content."""

from __future__ import annotations

import errno

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_MORE_FILES = (errno.EMFILE, errno.ENFILE)
_PASSING = (errno.EACCES, errno.EPERM, errno.EIO, errno.ENOMEM, errno.ESTALE, errno.ETIMEDOUT, errno.EINTR)


def no_room(error: OSError) -> bool:
    """Whether a write failed because the disk, a quota or a limit on file sizes is exhausted."""
    return error.errno in _NO_ROOM


def no_more_files(error: OSError) -> bool:
    """Whether the process, or the machine, has as many files open as it may."""
    return error.errno in _NO_MORE_FILES


def is_unreadable(error: OSError) -> bool:
    """Whether a file could not be read for now, whatever it holds: no access, a failing disk or network."""
    return error.errno in _PASSING
