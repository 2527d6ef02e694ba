"""Read HFiles of version 3: sorted keys with values, the base file format of the metadata table.

See docs/format/07-index-and-metadata.md, "HFile".

The files are written by Hudi (one index level, checksum type NULL) or, in older tables, by HBase (CRC-32C, several
index levels). Input is not trusted: sizes are checked against the available bytes, and no block is read twice, so that
work and memory are bounded by the uncompressed size of the blocks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import flags, pc
from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.hfile.block import (
    DATA,
    FILE_INFO,
    INTERMEDIATE_INDEX,
    LEAF_INDEX,
    META,
    ROOT_INDEX,
    Codec,
    Stretch,
    corrupt,
    read_block,
    supported_codec,
)
from streaming_lsm.format.hfile.cells import Cells, decode_cells
from streaming_lsm.format.hfile.index import Pointer, blocks_of, data_blocks, out_of_order, root_entries
from streaming_lsm.format.hfile.trailer import TRAILER_BYTES, Trailer, decode_file_info

SCHEMA_ENTRY = "schema"
LAST_KEY = "hfile.LASTKEY"
"""Entry of the file info: two bytes, and the last key."""
_TAIL_BYTES = 1 << 16
"""Bytes at the end of a file that are read first; as a rule they hold the trailer, the indexes and the file info."""
_RANGE_BYTES = 8 << 20
"""Bytes of neighbouring blocks that are read at a time; one block at least."""
_PART_BYTES = 1 << 18
"""Bytes of blocks that are decoded at a time, so that their cells fit the CPU cache; one block at least."""
_SCANNED_CELLS = 1 << 20
"""Cells among which a scan looks for its keys at a time: the set of keys is built anew each time."""
_FEW_CELLS = 256
"""Cells that are compared one by one, which takes less time than to compare them all at once."""
_JOINED_CELLS = 1 << 13
"""Cells that are returned together, if they are from several parts: what decodes them has a cost for each call."""
_GAP_BYTES = 1 << 16
"""Bytes between two blocks that are read rather than left out: a request for another range costs more."""


@dataclass(frozen=True, slots=True)
class HFile:
    """Open HFile whose trailer, indexes and file info have been read and checked.

    Attributes:
        source: name of the file, for messages.
        info: the file info, e.g. ``schema``, ``minRecordKey``.
        entry_count: number of entries according to the trailer, checked by `cells`.
        blocks: the data blocks, in ascending order of offset and key.
    """

    source: str
    info: Mapping[str, bytes]
    entry_count: int
    blocks: tuple[Pointer, ...]
    _file: pa.NativeFile
    _codec: Codec
    _limit: int
    _metas: Mapping[bytes, Pointer]

    @classmethod
    def open(cls, content: bytes | memoryview | pa.NativeFile, source: str) -> HFile:
        """Read trailer, indexes and file info.

        Args:
            content: the file, open for random access, or its bytes, or those of an HFILE_DATA block.
            source: name of the file, for messages.

        Raises:
            CorruptFileError: the bytes are truncated or altered.
            UnsupportedTable: another version or codec, an encrypted file, or encoded blocks.
        """
        file = content if isinstance(content, pa.NativeFile) else pa.BufferReader(pa.py_buffer(content))
        size = file.size()
        tail = _read(file, max(0, size - _TAIL_BYTES), size, source)
        trailer = Trailer.decode(tail.data, source)
        codec, limit, end = supported_codec(trailer.codec, source), trailer.load_on_open_offset, size - TRAILER_BYTES
        if 0 <= limit < tail.start:
            tail = _read(file, limit, size, source)
        root = read_block(stretch=tail, offset=limit, limit=end, magic=ROOT_INDEX, codec=codec, source=source)
        meta = read_block(stretch=tail, offset=root.end, limit=end, magic=ROOT_INDEX, codec=codec, source=source)
        info = read_block(stretch=tail, offset=meta.end, limit=end, magic=FILE_INFO, codec=codec, source=source)
        if info.end != end or meta.end != trailer.file_info_offset:
            raise corrupt(source, meta.end, "the file info is not where the trailer says, or does not end the file")

        def read_index(pointer: Pointer, levels: int) -> bytes:
            magic = LEAF_INDEX if levels == 2 else INTERMEDIATE_INDEX
            return _payload(file, pointer, limit, magic, codec, source)

        count, levels = trailer.data_index_count, trailer.index_levels
        metas = root_entries(meta.payload, trailer.meta_index_count, 0, source)
        return cls(
            source=source,
            info=decode_file_info(info.payload, source),
            entry_count=trailer.entry_count,
            blocks=tuple(data_blocks(root.payload, count, levels, read_index, source)),
            _file=file,
            _codec=codec,
            _limit=limit,
            _metas={pointer.key: pointer for pointer in metas},
        )

    @property
    def schema_json(self) -> str:
        """Avro JSON of the values.

        Raises:
            CorruptFileError: the file has none.
        """
        try:
            return self.info[SCHEMA_ENTRY].decode()
        except (KeyError, UnicodeDecodeError):
            raise CorruptFileError(f"{self.source}: HFile has no readable schema entry; restore the file") from None

    def meta(self, name: str) -> bytes | None:
        """Read the content of a meta block, e.g. ``bloomFilter``; None if the file has no such block."""
        pointer = self._metas.get(name.encode())
        if pointer is None:
            return None
        return _payload(self._file, pointer, self._limit, META, self._codec, self.source)

    def cells(self) -> Iterator[Cells]:
        """Yield all cells in ascending order, those of some neighbouring blocks at a time.

        Raises:
            CorruptFileError: a block is damaged, or, at the end, the number of entries differs from the trailer's.
        """
        count, last = 0, b""
        for _, found in self._read(range(len(self.blocks))):
            count += len(found)
            keys = found.keys
            self._check_order(last, keys)
            last = keys[-1].as_py()
            yield found
        if count != self.entry_count:
            raise CorruptFileError(
                f"{self.source}: HFile holds {count} entries instead of {self.entry_count}; restore the file"
            )

    def seek(self, keys: pa.BinaryArray) -> Iterator[Cells]:
        """Yield the cells of some keys in ascending order; only the blocks that may contain them are read.

        Args:
            keys: without nulls, in any order.

        Raises:
            CorruptFileError: a block is damaged.
        """
        blocks, nth = blocks_of([pointer.key for pointer in self.blocks], keys)

        def wanted() -> Iterator[Cells]:
            for numbers, found in self._read(np.unique(blocks).tolist()):
                near = nth[np.searchsorted(blocks, numbers[0]) : np.searchsorted(blocks, numbers[-1], "right")]
                yield found.at(flags(pc.is_in(found.keys, value_set=keys.take(near))))

        return _gathered(wanted())

    def blocks_from(self, beginnings: pa.BinaryArray) -> Iterator[Cells]:
        """Yield all cells of the blocks that may contain a key that begins in one of some ways, in ascending order.

        Args:
            beginnings: without nulls, in any order; none is empty.

        Raises:
            CorruptFileError: a block is damaged.
        """
        first_keys = [pointer.key for pointer in self.blocks]
        first, nth = blocks_of(first_keys, beginnings)
        texts = [text for text in beginnings.to_pylist() if text is not None]
        numbers = {int(block) for block in first}
        for block, text in zip(first.tolist(), (texts[place] for place in nth.tolist()), strict=True):
            for later in range(block + 1, len(first_keys)):
                if not first_keys[later].startswith(text):
                    break
                numbers.add(later)
        # A beginning that precedes all keys is in the first blocks, if it is one of theirs.
        for number, key in enumerate(first_keys):
            if not any(key.startswith(text) for text in texts):
                break
            numbers.add(number)
        for _, found in self._read(sorted(numbers)):
            yield found

    def scan(self, keys: pa.BinaryArray) -> Iterator[Cells]:
        """Yield the cells of some keys in ascending order, as `seek` does, but read all blocks: faster for many keys.

        Args:
            keys: without nulls, in any order.

        Raises:
            CorruptFileError: a block is damaged.
        """

        def wanted() -> Iterator[Cells]:
            for group in _groups(self.cells(), _SCANNED_CELLS):
                # The set of keys is built anew for each call.
                known = pa.chunked_array([found.keys for found in group], pa.binary())
                is_wanted = flags(pc.is_in(known, value_set=keys))
                ends = np.cumsum([0, *map(len, group)]).tolist()
                for found, begin, end in zip(group, ends, ends[1:], strict=False):
                    yield found.at(is_wanted[begin:end])

        return _gathered(wanted())

    def _read(self, numbers: Iterable[int]) -> Iterator[tuple[list[int], Cells]]:
        """Read some blocks, given by their indices in ascending order; yield neighbouring ones together."""
        for near in self._near(numbers, _RANGE_BYTES):
            first, last = self.blocks[near[0]], self.blocks[near[-1]]
            stretch = _read(self._file, first.offset, min(last.end, self._limit), self.source)
            for part in self._near(near, _PART_BYTES):
                found = self._decoded(stretch, [self.blocks[number] for number in part])
                if len(found):
                    yield part, found

    def _near(self, numbers: Iterable[int], most: int) -> Iterator[list[int]]:
        """Group blocks that are near each other, up to `most` bytes, or one block."""
        group: list[int] = []
        for number in numbers:
            pointer = self.blocks[number]
            if group and (
                pointer.end - self.blocks[group[0]].offset > most
                or pointer.offset - self.blocks[group[-1]].end > _GAP_BYTES
            ):
                yield group
                group = []
            group.append(number)
        if group:
            yield group

    def _decoded(self, stretch: Stretch, pointers: Sequence[Pointer]) -> Cells:
        payloads = [_block(stretch, pointer, self._limit, DATA, self._codec, self.source) for pointer in pointers]
        ends = np.cumsum([len(payload) for payload in payloads])
        blocks = np.append(0, ends[:-1])
        offsets = np.array([pointer.offset for pointer in pointers], np.int64)
        filled = np.array([len(payload) > 0 for payload in payloads], np.bool_)
        data = np.frombuffer(b"".join(payloads), np.uint8)
        found = decode_cells(data, blocks[filled], offsets[filled], self.source)
        heads = found.key_starts.searchsorted(blocks[filled]).tolist()
        for head, pointer in zip(heads, itertools.compress(pointers, filled.tolist()), strict=True):
            key = data[found.key_starts[head] : found.key_ends[head]].tobytes()
            if key < pointer.key:
                raise corrupt(self.source, pointer.offset, f"key {key!r:.80} is less than its index entry")
        return found

    def _check_order(self, last: bytes, keys: pa.BinaryArray) -> None:
        if len(keys) <= _FEW_CELLS:
            texts: list[Any] = keys.to_pylist()
            for former, key in zip([last, *texts], texts, strict=False):
                if key < former and out_of_order(former, key):
                    raise self._disordered(former, key)
            return
        before = pa.concat_arrays([pa.array([last], pa.binary()), keys.slice(0, len(keys) - 1)])
        for place in np.flatnonzero(flags(pc.less(keys, before))).tolist():
            key, former = keys[place].as_py(), before[place].as_py()
            if out_of_order(former, key):
                raise self._disordered(former, key)

    def _disordered(self, former: bytes, key: bytes) -> CorruptFileError:
        return CorruptFileError(f"{self.source}: HFile key {key!r:.80} follows {former!r:.80}; restore the file")


def _gathered(parts: Iterator[Cells]) -> Iterator[Cells]:
    """Join parts that have few cells each: what decodes them has a fixed cost for each part."""
    for group in _groups(filter(len, parts), _JOINED_CELLS):
        yield Cells.joined(group) if len(group) > 1 else group[0]


def _groups(parts: Iterator[Cells], least: int) -> Iterator[list[Cells]]:
    """Group parts to at least so many cells; the last group may have fewer."""
    group: list[Cells] = []
    count = 0
    for part in parts:
        group.append(part)
        count += len(part)
        if count >= least:
            yield group
            group, count = [], 0
    if group:
        yield group


def _read(file: pa.NativeFile, start: int, end: int, source: str) -> Stretch:
    data: bytes = file.read_at(max(0, end - start), start)  # type: ignore[call-arg]  # the stubs lack the offset
    if len(data) != end - start:
        raise corrupt(source, start, f"the file ends before offset {end}")
    return Stretch(memoryview(data), start)


def _payload(file: pa.NativeFile, pointer: Pointer, limit: int, magic: bytes, codec: Codec, source: str) -> bytes:
    if not 0 <= pointer.offset <= pointer.end <= limit:
        raise corrupt(source, pointer.offset, f"an index entry of {pointer.size} bytes passes offset {limit}")
    stretch = _read(file, pointer.offset, pointer.end, source)
    return _block(stretch, pointer, limit, magic, codec, source)


def _block(stretch: Stretch, pointer: Pointer, limit: int, magic: bytes, codec: Codec, source: str) -> bytes:
    end = min(limit, stretch.start + len(stretch.data))
    block = read_block(stretch=stretch, offset=pointer.offset, limit=end, magic=magic, codec=codec, source=source)
    if block.end != pointer.end:
        raise corrupt(source, pointer.offset, f"the index says {pointer.size} bytes for a block that ends elsewhere")
    return block.payload
