"""Keep the footers of an open table's files, which never change, so that look-ups read each of them once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from threading import Lock

from streaming_lsm.file_group.data_file import DataFile, FooterReader, key_column, key_ranges
from streaming_lsm.file_group.file_system_view import BaseFile, LogFile
from streaming_lsm.file_group.key_index import KeyIndex
from streaming_lsm.format.log.native_footer import LogHeader

_MOST_BYTES = 128 << 20


@dataclass
class KnownFooters:
    """Keeps checked footers with their key indexes, those used last, up to a limit of memory.

    Attributes:
        most_bytes: approximate bytes of memory, by `KeyIndex.weight`.
    """

    most_bytes: int = _MOST_BYTES
    _bytes: int = 0
    _lock: Lock = field(default_factory=Lock)
    _found: OrderedDict[tuple[str, int], tuple[DataFile, LogHeader | None]] = field(default_factory=OrderedDict)

    def get(
        self, file: BaseFile | LogFile, read: Callable[[], tuple[DataFile, LogHeader | None]]
    ) -> tuple[DataFile, LogHeader | None]:
        """Return what is known of a file, and read it first if nothing is."""
        key = (file.path, file.size)
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
                return self._found[key]
        found = read()
        with self._lock:
            if key not in self._found:
                self._found[key] = found
                self._bytes += _weight(found)
            while self._bytes > self.most_bytes and len(self._found) > 1:
                _, dropped = self._found.popitem(last=False)
                self._bytes -= _weight(dropped)
        return found


def _weight(found: tuple[DataFile, LogHeader | None]) -> int:
    index = found[0].index
    return index.weight if index is not None else 0


@dataclass(frozen=True)
class KnownFooterReader:
    """Reads footers as `FooterReader` does, each once; the files are not open, and have an index of their keys.

    Attributes:
        reader: reads and checks the footers.
        known: the footers read before.
    """

    reader: FooterReader
    known: KnownFooters

    def base(self, base: BaseFile, _files: ExitStack) -> DataFile:
        """Return a base file that is opened when it is read; raises as `open_slice`."""

        def read() -> tuple[DataFile, LogHeader | None]:
            with ExitStack() as one:
                return _closed(self.reader.base(base, one)), None

        return self.known.get(base, read)[0]

    def log(self, log: LogFile, _files: ExitStack) -> tuple[DataFile, LogHeader]:
        """Return a native log that is opened when it is read; raises as `open_slice`."""

        def read() -> tuple[DataFile, LogHeader | None]:
            with ExitStack() as one:
                file, header = self.reader.log(log, one)
                return _closed(file), header

        file, header = self.known.get(log, read)
        assert header is not None
        return file, header


def _closed(file: DataFile) -> DataFile:
    assert file.opened is not None
    metadata = file.opened.parquet.metadata
    return replace(file, opened=None, index=KeyIndex.of(metadata, key_column(metadata), key_ranges(metadata)))
