"""Read HFiles of version 3: sorted keys with values, the base file format of the metadata table.

See docs/format/07-index-and-metadata.md, "HFile".

The files are written by Hudi (one index level, checksum type NULL) or, in older tables, by HBase (CRC-32C, several
index levels). Input is not trusted: sizes are checked against the available bytes, and no block is read twice, so that
work and memory are bounded by the uncompressed size of the blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.buffers import Array, take
from streaming_lsm.arrow.columns import Int64s, flags, pc
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
from streaming_lsm.format.hfile.cells import Cells, decode_cells, find_cells
from streaming_lsm.format.hfile.index import Pointers, blocks_of, data_blocks, out_of_order, root_entries
from streaming_lsm.format.hfile.trailer import TRAILER_BYTES, Trailer, decode_file_info

SCHEMA_ENTRY = "schema"
LAST_KEY = "hfile.LASTKEY"
"""Entry of the file info: two bytes, and the last key."""
_TAIL_BYTES = 1 << 16
"""Bytes at the end of a file that are read first; as a rule they hold the trailer, the indexes and the file info."""
_RANGE_BYTES = 8 << 20
"""Bytes of neighbouring blocks that are read at a time; one block at least."""
_PART_BYTES = 1 << 20
"""Bytes of uncompressed blocks that are decoded together, so that their cells fit the CPU cache; one block at least."""
_FEW_OF_A_BLOCK = 4
"""Keys for each block up to which the cells of a block are found by their bytes, which costs for each key."""
_SCANNED_BLOCKS = 64
"""Blocks for which a scan groups its keys: among the cells of a group only its keys are looked for, a small set."""
_FEW_CELLS = 256
"""Cells that are compared one by one, which takes less time than to compare them all at once."""
_JOINED_CELLS = 1 << 13
"""Cells that are returned together, if they are from several parts: what decodes them has a cost for each call."""
_CLOSED = pa.BufferReader(b"")
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
    blocks: Pointers
    _file: pa.NativeFile
    _codec: Codec
    _limit: int
    _metas: Mapping[bytes | None, tuple[int, int]]

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

        def read_index(start: int, after: int, levels: int) -> bytes:
            magic = LEAF_INDEX if levels == 2 else INTERMEDIATE_INDEX
            return _payload(file, start, after, limit, magic, codec, source)

        count, levels = trailer.data_index_count, trailer.index_levels
        metas = root_entries(meta.payload, trailer.meta_index_count, 0, source)
        return cls(
            source=source,
            info=decode_file_info(info.payload, source),
            entry_count=trailer.entry_count,
            blocks=data_blocks(root.payload, count, levels, read_index, source),
            _file=file,
            _codec=codec,
            _limit=limit,
            _metas={
                name: (start, after)
                for name, start, after in zip(
                    metas.keys.to_pylist(), metas.offsets.tolist(), metas.ends.tolist(), strict=True
                )
            },
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

    @property
    def last_key(self) -> bytes:
        """The last key, according to the file info; empty if it is not there, as in files without cells."""
        return self.info.get(LAST_KEY, b"")[2:]

    @property
    def nbytes(self) -> int:
        """Bytes in memory: those of the index, and of a file that is not read from a storage."""
        blocks = self.blocks
        content = self._file.size() if isinstance(self._file, pa.BufferReader) else 0
        return int(blocks.keys.nbytes + blocks.offsets.nbytes + blocks.ends.nbytes + content)

    @property
    def is_closed(self) -> bool:
        """Whether the handle of the file was given back, so that no block can be read."""
        return self._file is _CLOSED

    def reopened(self, file: pa.NativeFile) -> HFile:
        """Return the HFile with another handle of its file."""
        return replace(self, _file=file)

    def closed(self) -> HFile:
        """Return the HFile, to be reopened, without the handle of its file; unless it is in memory."""
        return self if isinstance(self._file, pa.BufferReader) else replace(self, _file=_CLOSED)

    def meta(self, name: str) -> bytes | None:
        """Read the content of a meta block, e.g. ``bloomFilter``; None if the file has no such block."""
        place = self._metas.get(name.encode())
        return place and _payload(self._file, *place, self._limit, META, self._codec, self.source)

    def cells(self) -> Iterator[Cells]:
        """Yield all cells in ascending order, those of some neighbouring blocks at a time.

        Raises:
            CorruptFileError: a block is damaged, or, at the end, the number of entries differs from the trailer's.
        """
        for _, found, _ in self._all():
            yield found

    def _all(self) -> Iterator[tuple[list[int], Cells, pa.BinaryArray]]:
        """Read all blocks as `cells` does; yield with the cells the blocks that they are from, and their keys."""
        count, last = 0, b""
        for part, found in self._read(np.arange(len(self.blocks))):
            count += len(found)
            keys = found.keys
            self._check_order(last, keys)
            last = keys[-1].as_py()
            yield part, found, keys
        if count != self.entry_count:
            raise CorruptFileError(
                f"{self.source}: HFile holds {count} entries instead of {self.entry_count}; restore the file"
            )

    def first_value(self) -> bytes | None:
        """Read the first block, and return the value of its first cell; None if the file has no cells.

        Raises:
            CorruptFileError: the block is damaged.
        """
        for _, found in self._read(np.arange(min(1, len(self.blocks)))):
            value: bytes = found.at(np.zeros(1, np.int64)).values[0].as_py()
            return value
        return None

    def seek(self, keys: pa.BinaryArray) -> Iterator[Cells]:
        """Yield the cells of some keys in ascending order; only the blocks that may contain them are read.

        Args:
            keys: without nulls, in any order.

        Raises:
            CorruptFileError: a block is damaged.
        """
        blocks, nth = blocks_of(self.blocks.keys, keys)
        numbers = np.unique(blocks)
        # A checksum covers what is compressed: then its cells need not be followed from the first one on.
        if self._codec is Codec.GZIP and len(nth) <= _FEW_OF_A_BLOCK * len(numbers):
            return _gathered(self._sought(numbers, blocks, take(keys, nth)))

        def wanted() -> Iterator[Cells]:
            for part, found in self._read(numbers):
                near = nth[np.searchsorted(blocks, part[0]) : np.searchsorted(blocks, part[-1], "right")]
                yield found.at(flags(pc.is_in(found.keys, value_set=take(keys, near))))

        return _gathered(wanted())

    def blocks_from(self, beginnings: pa.BinaryArray) -> Iterator[Cells]:
        """Yield all cells of the blocks that may contain a key that begins in one of some ways, in ascending order.

        Args:
            beginnings: without nulls, in any order; none is empty.

        Raises:
            CorruptFileError: a block is damaged.
        """
        first, nth = blocks_of(self.blocks.keys, beginnings)
        first_keys = [key or b"" for key in self.blocks.keys.to_pylist()]
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
        starts: Any = take(self.blocks.keys, np.arange(0, len(self.blocks), _SCANNED_BLOCKS))
        groups, nth = blocks_of(starts, keys)

        def wanted() -> Iterator[Cells]:
            for part, found, known in self._all():
                first, last = part[0] // _SCANNED_BLOCKS, part[-1] // _SCANNED_BLOCKS
                near = nth[np.searchsorted(groups, first) : np.searchsorted(groups, last, "right")]
                yield found.at(flags(pc.is_in(known, value_set=take(keys, near))))

        return _gathered(wanted())

    def _sought(self, numbers: Int64s, blocks: Int64s, keys: Array) -> Iterator[Cells]:
        """Yield the cells of few keys of each block.

        Args:
            numbers: the blocks, ascending, int64 (m,).
            blocks: a block that may contain each key, ascending, int64 (n,).
            keys: the keys (n,).
        """
        for part, payloads in self._payloads(numbers):
            near = slice(*np.searchsorted(blocks, (part[0], part[-1] + 1)).tolist())
            of_block = dict(zip(part, payloads, strict=True))
            texts: list[Any] = keys.slice(near.start, near.stop - near.start).to_pylist()
            asked = sorted(set(zip(blocks[near].tolist(), texts, strict=True)))
            found = find_cells((key, of_block[number]) for number, key in asked if number in of_block)
            if found is None:
                decoded = self._decoded(part, payloads)
                yield decoded.at(flags(pc.is_in(decoded.keys, value_set=pa.array(texts, pa.binary()))))
            else:
                yield found

    def _read(self, numbers: Sequence[int] | Int64s) -> Iterator[tuple[list[int], Cells]]:
        """Read some blocks, given by their indices in ascending order; yield those of `_PART_BYTES` together."""
        for part, payloads in self._payloads(numbers):
            yield part, self._decoded(part, payloads)

    def _payloads(self, numbers: Sequence[int] | Int64s) -> Iterator[tuple[list[int], list[bytes]]]:
        """Read some blocks as `_read` does; yield their indices and their payloads, without those that are empty."""
        part: list[int] = []
        payloads: list[bytes] = []
        size = 0
        for near in self._near(numbers):
            stretch = _read(self._file, near[0][1], min(near[-1][2], self._limit), self.source)
            for number, start, end in near:
                payload = _block(stretch, start, end, self._limit, DATA, self._codec, self.source)
                if payload:
                    part.append(number)
                    payloads.append(payload)
                    size += len(payload)
                if size >= _PART_BYTES:
                    yield part, payloads
                    part, payloads, size = [], [], 0
        if part:
            yield part, payloads

    def _near(self, numbers: Sequence[int] | Int64s) -> Iterator[list[tuple[int, int, int]]]:
        """Group blocks, each with offset and end, that are near each other, up to `_RANGE_BYTES`, or one block."""
        wanted = np.asarray(numbers, np.int64)
        offsets, ends = self.blocks.offsets[wanted].tolist(), self.blocks.ends[wanted].tolist()
        group: list[tuple[int, int, int]] = []
        begin = before = 0
        for one in zip(wanted.tolist(), offsets, ends, strict=True):
            _, offset, end = one
            if group and (end - begin > _RANGE_BYTES or offset - before > _GAP_BYTES):
                yield group
                group = []
            if not group:
                begin = offset
            group.append(one)
            before = end
        if group:
            yield group

    def _decoded(self, numbers: Sequence[int] | Int64s, payloads: Sequence[bytes]) -> Cells:
        """Find the cells of blocks, of which none is empty."""
        places = np.asarray(numbers)
        blocks = np.cumsum([0, *map(len, payloads)])[:-1]
        offsets = self.blocks.offsets[places]
        data = np.frombuffer(b"".join(payloads), np.uint8)
        found = decode_cells(data, blocks, offsets, self.source)
        heads = found.key_starts.searchsorted(blocks).tolist()
        for head, least, offset in zip(
            heads, take(self.blocks.keys, places).to_pylist(), offsets.tolist(), strict=True
        ):
            key = data[found.key_starts[head] : found.key_ends[head]].tobytes()
            if key < (least or b""):
                raise corrupt(self.source, offset, f"key {key!r:.80} is less than its index entry")
        return found

    def _check_order(self, last: bytes, keys: pa.BinaryArray) -> None:
        first: Any = keys[0].as_py()
        if out_of_order(last, first):
            raise self._disordered(last, first)
        if len(keys) <= _FEW_CELLS:
            texts: list[Any] = keys.to_pylist()
            falls = [place for place, (former, key) in enumerate(pairwise(texts)) if key < former]
        else:
            falls = np.flatnonzero(flags(pc.less(keys.slice(1), keys.slice(0, len(keys) - 1)))).tolist()
        for place in falls:
            former, key = keys[place].as_py(), keys[place + 1].as_py()
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


def count_entries(file: pa.NativeFile, source: str) -> int:
    """Read the number of entries of an HFile from its trailer, and nothing else; raises as `Trailer.decode`."""
    size = file.size()
    return Trailer.decode(_read(file, max(0, size - TRAILER_BYTES), size, source).data, source).entry_count


def _read(file: pa.NativeFile, start: int, end: int, source: str) -> Stretch:
    data: bytes = file.read_at(max(0, end - start), start)  # type: ignore[call-arg]  # the stubs lack the offset
    if len(data) != end - start:
        raise corrupt(source, start, f"the file ends before offset {end}")
    return Stretch(memoryview(data), start)


def _payload(file: pa.NativeFile, start: int, end: int, limit: int, magic: bytes, codec: Codec, source: str) -> bytes:
    if not 0 <= start <= end <= limit:
        raise corrupt(source, start, f"an index entry of {end - start} bytes passes offset {limit}")
    return _block(_read(file, start, end, source), start, end, limit, magic, codec, source)


def _block(stretch: Stretch, start: int, end: int, limit: int, magic: bytes, codec: Codec, source: str) -> bytes:
    limit = min(limit, stretch.start + len(stretch.data))
    block = read_block(stretch=stretch, offset=start, limit=limit, magic=magic, codec=codec, source=source)
    if block.end != end:
        raise corrupt(source, start, f"the index says {end - start} bytes for a block that ends elsewhere")
    return block.payload
