"""Write what a verb prints to a file, which is there as a whole or not at all, or to standard output."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from typing import BinaryIO, TextIO

from streaming_lsm.storage.failures import naming
from streaming_lsm.storage.temporary_file import temporary_name

_OPEN_FILES = ("/dev/stdout", "/dev/stderr", "/dev/fd/")
"""Name files that the process has open: they are written as they are."""


@contextmanager
def binary_output(path: str | None) -> Iterator[BinaryIO]:
    """Open a file that gets its name at the end, or standard output if there is no path.

    The temporary file lies beside it, and is deleted after an error or an interrupt: what the path held before stays.
    Devices and named pipes are written as they are.

    Raises:
        OSError: the file cannot be created, written or renamed.
    """
    if path is None:
        yield sys.stdout.buffer
    elif path.startswith(_OPEN_FILES) or (os.path.exists(path) and not os.path.isfile(path)):
        with open(path, "wb") as file:
            yield file
    else:
        with _replacing(path) as file:
            yield file


@contextmanager
def text_output(path: str | None) -> Iterator[TextIO]:
    """Open what `binary_output` opens for text, in UTF-8 in a file; raises as it does."""
    if path is None:
        yield sys.stdout
        return
    with binary_output(path) as file:
        text = TextIOWrapper(file, encoding="utf-8", newline="\n", write_through=True)
        try:
            yield text
        finally:
            text.detach()


@contextmanager
def _replacing(path: str) -> Iterator[BinaryIO]:
    if path.endswith(os.sep):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    final = os.path.realpath(path)  # of a link, what it leads to is replaced
    if os.path.exists(final) and not os.access(final, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
    temporary = os.path.join(os.path.dirname(final), temporary_name())
    try:
        with naming(path), _created(temporary, path) as file:
            yield file
        if os.path.exists(final):
            shutil.copymode(final, temporary)
        os.replace(temporary, final)
    except BaseException:  # Ctrl-C, too
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def _created(temporary: str, path: str) -> BinaryIO:
    try:
        return open(temporary, "xb")
    except OSError as error:
        error.filename = path
        raise
