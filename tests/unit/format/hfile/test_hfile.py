import gzip
import random
import struct
import tracemalloc
import zlib
from collections.abc import Iterator
from itertools import pairwise
from typing import TypeVar

import pyarrow as pa
import pytest

from streaming_lsm.errors import CorruptFileError, RecordError, UnsupportedTable
from streaming_lsm.format.bloom import BloomFilter
from streaming_lsm.format.hfile.block import (
    DATA,
    FILE_INFO,
    HEADER,
    INTERMEDIATE_INDEX,
    LEAF_INDEX,
    ROOT_INDEX,
    Codec,
    Stretch,
    read_block,
    write_block,
)
from streaming_lsm.format.hfile.cells import KEY_TAIL
from streaming_lsm.format.hfile.crc32c import crc32c
from streaming_lsm.format.hfile.reader import HFile
from streaming_lsm.format.hfile.trailer import TRAILER_BYTES, Trailer, encode_file_info
from streaming_lsm.format.hfile.writer import BLOCK_BYTES
from tests.support.crash_points import random_cases
from tests.support.hfiles import Entry, entries_of, sought, written

SCHEMA = '{"type":"record","name":"Row","fields":[]}'
ENTRIES = [(f"key-{number:04d}".encode(), bytes([number % 251]) * (number % 40)) for number in range(300)]
Pointer = tuple[bytes, int, int]
T = TypeVar("T")


def _written(entries: list[Entry], block_bytes: int = 1000, compression: str = "gzip") -> bytes:
    return written(
        entries, schema_json=SCHEMA, created_ms=1_700_000_000_000, block_bytes=block_bytes, compression=compression
    )


def _bytewise_crc32c(data: bytes) -> int:
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


class HBaseFile:
    """A file as HBase lays it out: checksums, whole keys in the indexes, several index levels."""

    def __init__(self, checksum: int = 2, per_checksum: int = 128) -> None:
        self.data = bytearray()
        self.checksum, self.per_checksum = checksum, per_checksum

    def block(self, magic: bytes, payload: bytes) -> tuple[int, int]:
        packed = gzip.compress(payload, mtime=0)
        stored = HEADER.size + len(packed)
        sums = 4 * -(-stored // self.per_checksum)
        kind = (self.checksum, self.per_checksum)
        covered = HEADER.pack(magic, len(packed) + sums, len(payload), -1, *kind, stored) + packed
        function = {1: zlib.crc32, 2: _bytewise_crc32c}.get(self.checksum, zlib.crc32)
        pieces = (covered[at : at + self.per_checksum] for at in range(0, stored, self.per_checksum))
        block = covered + b"".join(struct.pack(">I", function(piece)) for piece in pieces)
        self.data += block
        return len(self.data) - len(block), len(block)

    def cells(self, entries: list[Entry]) -> Pointer:
        cells = b"".join(
            struct.pack(">iih", len(key) + 12, len(value), len(key)) + key + KEY_TAIL + value + b"\0"
            for key, value in entries
        )
        return (entries[0][0], *self.block(DATA, cells))

    def index(self, magic: bytes, pointers: list[Pointer]) -> Pointer:
        bodies = [struct.pack(">qih", at, size, len(key)) + key + KEY_TAIL for key, at, size in pointers]
        starts = [sum(map(len, bodies[:count])) for count in range(len(bodies) + 1)]
        head = struct.pack(f">i{len(starts)}i", len(bodies), *starts)
        return (pointers[0][0], *self.block(magic, head + b"".join(bodies)))

    def finish(self, pointers: list[Pointer], entries: int, levels: int, behind: bytes = b"") -> bytes:
        load_on_open = len(self.data)
        bodies = [
            struct.pack(">qiBh", at, size, len(key) + 12, len(key)) + key + KEY_TAIL for key, at, size in pointers
        ]
        self.block(ROOT_INDEX, b"".join(bodies) + behind)
        self.block(ROOT_INDEX, b"")
        info = len(self.data)
        self.block(FILE_INFO, encode_file_info({"schema": SCHEMA.encode()}))
        counts = (len(pointers), 0, entries, levels)
        return bytes(self.data) + Trailer(info, load_on_open, 0, *counts, 0, 0, Codec.GZIP).encode()


def _parts(items: list[T], size: int) -> list[list[T]]:
    return [items[at : at + size] for at in range(0, len(items), size)]


def _hbase(entries: list[Entry], levels: int, checksum: int = 2) -> bytes:
    file = HBaseFile(checksum)
    pointers = [file.cells(part) for part in _parts(entries, 20)]
    for level in range(2, levels + 1):
        magic = LEAF_INDEX if level == 2 else INTERMEDIATE_INDEX
        pointers = [file.index(magic, part) for part in _parts(pointers, 4)]
    return file.finish(pointers, len(entries), levels, bytes(16) if levels > 1 else b"")


def _blocks(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Offset and bytes of every block."""
    at = 0
    while at < len(data) - TRAILER_BYTES:
        end = at + HEADER.size + struct.unpack_from(">i", data, at + 8)[0]
        yield at, data[at:end]
        at = end


def _patched(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 127, 128, 129, 1000, 4096])
def test_crc32c_is_that_of_a_plain_loop_over_bytes(size: int) -> None:
    data = random.Random(size).randbytes(2 * size + size // 2)
    expected = [_bytewise_crc32c(data[at : at + size]) for at in range(0, len(data), size)]
    assert crc32c(data, size).tolist() == expected


def test_crc32c_of_the_published_check_value() -> None:
    assert crc32c(b"123456789", 16384).tolist() == [0xE3069283]
    assert crc32c(b"", 16384).tolist() == []


@pytest.mark.parametrize("compression", ["gzip", "none"])
@pytest.mark.parametrize("block_bytes", [1, 200, 5000, BLOCK_BYTES])
@pytest.mark.usefixtures("each_way")
def test_what_is_written_is_read(compression: str, block_bytes: int) -> None:
    file = HFile.open(memoryview(_written(ENTRIES, block_bytes, compression)), "f")
    assert entries_of(file) == ENTRIES
    assert file.entry_count == len(ENTRIES)
    assert file.schema_json == SCHEMA
    assert file.info["hfile.CREATE_TIME_TS"] == struct.pack(">q", 1_700_000_000_000)
    assert file.meta("bloomFilter") is None


def test_only_keys_that_are_there_are_found() -> None:
    file = HFile.open(_written(ENTRIES), "f")
    keys = [key for key, _ in ENTRIES]
    assert sought(file, keys[::-7]) == dict(ENTRIES[::-7])
    assert sought(file, [b"", b"key-", b"key-0100a", b"key-0299z", b"\xff", keys[5]]) == dict(ENTRIES[5:6])
    assert sought(file, []) == {}


def test_a_file_without_entries_holds_none() -> None:
    file = HFile.open(_written([]), "f")
    assert entries_of(file) == []
    assert sought(file, [b"a"]) == {}


@pytest.mark.usefixtures("each_way")
def test_a_value_beyond_the_block_size_has_a_block_of_its_own() -> None:
    entries = [(b"a", b"x"), (b"b", bytes(5000)), (b"c", b"y")]
    data = _written(entries, 1000)
    assert sum(block.startswith(DATA) for _, block in _blocks(data)) == 3
    assert entries_of(HFile.open(data, "f")) == entries


def test_index_keys_of_any_length_are_read() -> None:
    entries = [(bytes([97 + at]) * size, b"v") for at, size in enumerate((1, 109, 125, 126, 127, 128, 300, 32767))]
    file = HFile.open(_written(entries, 1), "f")
    assert entries_of(file) == entries
    assert sought(file, [key for key, _ in entries]) == dict(entries)


def test_a_bloom_filter_brings_first_and_last_key() -> None:
    bloom = BloomFilter.build([key for key, _ in ENTRIES], 1000, 1e-6, 10_000)
    file = HFile.open(written(ENTRIES, schema_json=SCHEMA, created_ms=0, bloom=bloom), "f")
    assert file.meta("bloomFilter") == bloom.encode().encode()
    names = ("minRecordKey", "maxRecordKey", "bloomFilterTypeCode")
    assert [file.info[name] for name in names] == [b"key-0000", b"key-0299", b"DYNAMIC_V0"]


def test_further_entries_of_the_file_info_are_kept() -> None:
    extra = {f"entry.{number}": bytes([number]) for number in range(20)}
    data = written(ENTRIES, schema_json=SCHEMA, created_ms=0, extra_info=extra)
    assert HFile.open(data, "f").info.items() >= extra.items()


@pytest.mark.parametrize("compression", ["gzip", "none"])
def test_checksums_are_shorter_than_the_last_cell_of_every_block(compression: str) -> None:
    """Hudi 1.2 takes them off the end of a block's content and reads no cell that begins behind."""
    entries = [(f"{number:x}".encode(), b"") for number in range(0x1000, 0x6000)]
    data = written(entries, schema_json=SCHEMA, created_ms=0, compression=compression)
    smallest_cell = 10 + 4 + len(KEY_TAIL) + 1
    blocks = [block for _, block in _blocks(data) if block.startswith(DATA)]
    assert len(blocks) > 4
    assert all(4 * -(-len(block) // 16384) < smallest_cell for block in blocks)


@pytest.mark.parametrize(
    ("entries", "error"),
    [
        ([(b"b", b""), (b"a", b"")], ValueError),
        ([(b"a", b"1"), (b"a", b"2")], ValueError),
        ([(b"", b"")], RecordError),
        ([(b"k" * 32768, b"")], RecordError),
    ],
)
@pytest.mark.usefixtures("each_way")
def test_keys_that_do_not_ascend_or_fit_are_refused(entries: list[Entry], error: type[Exception]) -> None:
    with pytest.raises(error, match="HFile"):
        _written(entries)


def test_other_compressions_and_entries_that_the_writer_makes_are_refused() -> None:
    with pytest.raises(ValueError, match="'zstd'"):
        _written(ENTRIES, compression="zstd")
    with pytest.raises(ValueError, match="schema"):
        written([], schema_json=SCHEMA, created_ms=0, extra_info={"schema": b"{}"})


@pytest.mark.parametrize("checksum", [1, 2])
@pytest.mark.parametrize("levels", [1, 2, 3, 4])
def test_files_of_hbase_are_read_through_all_index_levels(levels: int, checksum: int) -> None:
    file = HFile.open(_hbase(ENTRIES, levels, checksum), "f")
    assert entries_of(file) == ENTRIES
    assert sought(file, [ENTRIES[0][0], ENTRIES[137][0], b"key-0137a"]) == dict([ENTRIES[0], ENTRIES[137]])


def test_an_index_key_between_two_blocks_leads_to_the_later_one() -> None:
    file = HBaseFile()
    blocks = [file.cells(ENTRIES[:100]), file.cells(ENTRIES[100:])]
    blocks[1] = (b"key-00995", *blocks[1][1:])
    found = HFile.open(file.finish(blocks, 300, 1), "f")
    assert entries_of(found) == ENTRIES
    assert sought(found, [b"key-0099", b"key-0100", b"key-00996"]) == dict(ENTRIES[99:101])


@pytest.mark.usefixtures("each_way")
def test_keys_in_the_order_of_javas_strings_are_read_and_found() -> None:
    entries = [(b"a", b"1"), ("\U00010000".encode(), b"2"), ("\ue000".encode(), b"3"), ("\uffee".encode(), b"4")]
    for size in (1, 2, 3):
        file = HBaseFile()
        blocks = [file.cells(part) for part in _parts(entries, size)]
        found = HFile.open(file.finish(blocks, 4, 1), "f")
        assert entries_of(found) == entries
        assert sought(found, [key for key, _ in entries]) == dict(entries)


@pytest.mark.parametrize("checksum", [1, 2])
def test_a_changed_byte_under_a_checksum_is_noticed(checksum: int) -> None:
    data = _hbase(ENTRIES, 1, checksum)
    for offset, block in _blocks(data):
        for at in (20, HEADER.size + 9, len(block) - 1):
            changed = _patched(data, offset + at, bytes([block[at] ^ 1]))
            with pytest.raises(CorruptFileError, match=f"offset {offset}"):
                entries_of(HFile.open(changed, "f"))


@pytest.mark.parametrize(("checksum", "per_checksum"), [(3, 128), (2, 0), (2, -1), (2, 127), (1, 2**31 - 1)], ids=str)
def test_a_checksum_that_makes_no_sense_is_refused(checksum: int, per_checksum: int) -> None:
    data = _hbase(ENTRIES, 1)
    changed = _patched(data, 24, struct.pack(">bi", checksum, per_checksum))
    with pytest.raises(CorruptFileError, match="checksum"):
        entries_of(HFile.open(changed, "f"))


@pytest.mark.parametrize("codec", [Codec.LZO, Codec.SNAPPY, Codec.LZ4, Codec.BZIP2, Codec.ZSTD])
def test_other_codecs_are_refused_by_name(codec: Codec) -> None:
    with pytest.raises(UnsupportedTable, match=rf"f: HFile compressed with {codec.name};"):
        HFile.open(_with_trailer(codec=codec), "f")


def test_an_unknown_codec_is_refused_by_number() -> None:
    with pytest.raises(UnsupportedTable, match="number 9"):
        HFile.open(_with_trailer(codec=9), "f")


def test_other_versions_are_refused_by_number() -> None:
    with pytest.raises(UnsupportedTable, match="version 2"):
        HFile.open(_written(ENTRIES)[:-1] + b"\x02", "f")


def test_an_encrypted_file_is_refused() -> None:
    data = _written(ENTRIES)
    at = len(data) - TRAILER_BYTES + 8
    key = b"\x6a\x01k"
    changed = _patched(data, at, bytes([data[at] + len(key)]) + data[at + 1 : at + 1 + data[at]] + key)
    with pytest.raises(UnsupportedTable, match="encrypted"):
        HFile.open(changed, "f")


def test_encoded_data_blocks_are_refused_by_name() -> None:
    file = HFile.open(_patched(_written(ENTRIES), 0, b"DATABLKE"), "f")
    with pytest.raises(UnsupportedTable, match="DATABLKE"):
        entries_of(file)


def _with_trailer(**changes: int) -> bytes:
    """A sound file with another trailer."""
    data = _written(ENTRIES)
    trailer = Trailer.decode(memoryview(data), "f")
    values = {name: getattr(trailer, name) for name in Trailer.__slots__} | changes
    return data[:-TRAILER_BYTES] + Trailer(**values).encode()


@pytest.mark.parametrize(
    "changes",
    [
        {"entry_count": 299},
        {"entry_count": 2**63},
        {"data_index_count": 2},
        {"data_index_count": 2**63},
        {"meta_index_count": 1},
        {"index_levels": 0},
        {"index_levels": 2},
        {"index_levels": 2**31},
        {"load_on_open_offset": 0},
        {"load_on_open_offset": 2**63},
        {"file_info_offset": 0},
        {"codec": Codec.NONE},
    ],
    ids=str,
)
def test_a_trailer_that_contradicts_the_file_is_noticed(changes: dict[str, int]) -> None:
    with pytest.raises(CorruptFileError, match=r"^f: "):
        entries_of(HFile.open(_with_trailer(**changes), "f"))


def test_a_block_that_the_index_names_twice_is_read_once() -> None:
    file = HBaseFile()
    block = file.cells(ENTRIES[:100])
    with pytest.raises(CorruptFileError, match="out of order"):
        HFile.open(file.finish([block] * 1000, 100_000, 1), "f")
    with pytest.raises(CorruptFileError, match="out of order"):
        HFile.open(_nested_on_itself(), "f")


def _nested_on_itself() -> bytes:
    """Index levels of which each names the one below many times: without a check, 50 ** 4 data blocks."""
    file = HBaseFile()
    pointer = file.cells(ENTRIES[:1])
    for magic in (LEAF_INDEX, INTERMEDIATE_INDEX, INTERMEDIATE_INDEX):
        pointer = file.index(magic, [pointer] * 50)
    return file.finish([pointer] * 50, 1, 4, bytes(16))


@pytest.mark.parametrize("promised", [0, 10, 2**31 - 1])
def test_a_block_is_given_no_more_room_than_it_promises_and_fills(promised: int) -> None:
    data = _written(ENTRIES)
    info = Trailer.decode(memoryview(data), "f").file_info_offset
    real = 40_000_000 if promised < 2**31 - 1 else 1000
    block = _patched(write_block(FILE_INFO, bytes(real), Codec.GZIP), 12, struct.pack(">i", promised))
    tracemalloc.start()
    with pytest.raises(CorruptFileError, match=rf"offset {info}: .*block.* {promised}\b"):
        HFile.open(data[:info] + block + data[-TRAILER_BYTES:], "f")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def _outcome(data: bytes) -> list[Entry] | str:
    try:
        return entries_of(HFile.open(data, "f"))
    except (CorruptFileError, UnsupportedTable) as error:
        return type(error).__name__


@pytest.mark.parametrize("levels", [1, 3])
def test_a_truncated_file_is_an_error(levels: int) -> None:
    for data in (_written(ENTRIES[:60]), _written(ENTRIES[:60], compression="none"), _hbase(ENTRIES[:60], levels)):
        assert {_outcome(data[:end]) for end in range(0, len(data), 7)} == {"CorruptFileError"}


@pytest.mark.parametrize("form", ["hudi", "hbase"])
@pytest.mark.usefixtures("each_way")
def test_a_flipped_bit_never_changes_an_entry(form: str) -> None:
    data = _written(ENTRIES[:60]) if form == "hudi" else _hbase(ENTRIES[:60], 2)
    draw = random.Random(form)
    outcomes, cases = [], random_cases(1000, 40)
    for _ in range(cases):
        at = draw.randrange(len(data) - TRAILER_BYTES + 120)
        outcomes.append(_outcome(_patched(data, at, bytes([data[at] ^ 1 << draw.randrange(8)]))))
    changed = [found for found in outcomes if isinstance(found, list) and found != ENTRIES[:60]]
    assert changed == []
    assert outcomes.count("CorruptFileError") > 0.3 * cases


@pytest.mark.usefixtures("each_way")
def test_a_flipped_bit_without_any_checksum_changes_bytes_but_no_places() -> None:
    """Neither compressed nor under a checksum, as Hudi writes with compression NONE: nothing covers the bytes."""
    data = _written(ENTRIES[:60], compression="none")
    draw = random.Random(1)
    for _ in range(random_cases(1000, 40)):
        at = draw.randrange(len(data))
        found = _outcome(_patched(data, at, bytes([data[at] ^ 1 << draw.randrange(8)])))
        if isinstance(found, list):
            keys = [key for key, _ in found]
            assert [len(key) + len(value) for key, value in found] == [len(k) + len(v) for k, v in ENTRIES[:60]]
            assert all(before <= after for before, after in pairwise(keys))


def _repacked(data: bytes, number: int, packed: bytes) -> tuple[bytes, int]:
    """Put another stream, of no more bytes, in place of that of a data block; return the offset of the block, too."""
    at, block = [found for found in _blocks(data) if found[1].startswith(DATA)][number]
    magic, rest, size, *others, stored = HEADER.unpack_from(block)
    spare = stored - HEADER.size - len(packed)
    assert spare >= 0
    head = HEADER.pack(magic, rest, size, *others, stored - spare)
    return _patched(data, at, head + packed + bytes(rest - len(packed))), at


@pytest.mark.parametrize("number", [0, 3, -1])
@pytest.mark.parametrize("damage", ["no stream", "two streams", "two streams of the size", "cut short", "another size"])
def test_a_damaged_stream_among_others_is_named_by_its_block(damage: str, number: int) -> None:
    data = _written([(b"key-%04d" % number, random.Random(number).randbytes(40)) for number in range(300)])
    _, block = [found for found in _blocks(data) if found[1].startswith(DATA)][number]
    size = HEADER.unpack_from(block)[2]
    whole = gzip.compress(bytes(size))
    packed = {
        "no stream": bytes(20),
        "two streams": gzip.compress(bytes(size - 10)) + gzip.compress(bytes(10)),
        "two streams of the size": whole + whole,
        "cut short": whole[:12] + whole[-4:],
        "another size": gzip.compress(bytes(size - 1)),
    }[damage]
    damaged, at = _repacked(data, number, packed)
    file = HFile.open(damaged, "f")
    for find in (file.cells, lambda: file.seek(pa.array([key for key, _ in ENTRIES], pa.binary()))):
        with pytest.raises(CorruptFileError, match=rf"^f: HFile at offset {at}: the (compressed )?block "):
            list(find())


def test_streams_of_wrong_sizes_that_make_up_for_each_other_are_noticed() -> None:
    data = _written([(b"key-%04d" % number, random.Random(number).randbytes(40)) for number in range(300)])
    sizes = [HEADER.unpack_from(block)[2] for _, block in _blocks(data) if block.startswith(DATA)]
    for number, more in ((1, 5), (2, -5)):
        data, _ = _repacked(data, number, gzip.compress(bytes(sizes[number] + more)))
    with pytest.raises(CorruptFileError, match=r"the block holds|is not one gzip stream"):
        list(HFile.open(data, "f").cells())


def test_a_block_that_inflates_hugely_is_refused_before_it_is_inflated() -> None:
    block = write_block(DATA, bytes(200 << 20), Codec.GZIP)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptFileError, match="a block of 209715200 bytes, more than the 134217728 that are read"):
            read_block(Stretch(memoryview(block), 0), 0, len(block), DATA, Codec.GZIP, "file")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
