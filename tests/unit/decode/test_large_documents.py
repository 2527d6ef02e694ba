"""A document of any size costs a few times its bytes, and a tombstone no more than a row."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa
import pytest

from streaming_lsm.arrow.columns import pc
from streaming_lsm.decode.decoder import Decoder
from streaming_lsm.decode.envelope import Envelope
from streaming_lsm.decode.exact_documents import MOST_COMMAS
from tests.support.event_columns import kafka_messages

SIZE = 9 << 20
COLUMNS = pa.schema([("id", pa.string()), ("qty", pa.int32()), ("note", pa.string())])


def flat(**more: object) -> bytes:
    return json.dumps({"id": "a", "qty": 1, **more}, separators=(",", ":")).encode()


def among(rest: bytes) -> bytes:
    return b'{"id":"a","qty":1,' + rest + b"}"


GOOD, NO_OBJECT = None, "the value is not a JSON object: "
MANY = "the value is not plain, and has more than 1,000,000 commas"
DOCUMENTS: dict[str, tuple[Callable[[], bytes], str | None]] = {
    "a text": (lambda: flat(note="x" * SIZE), GOOD),
    "a text of escapes": (lambda: flat(note="\n" * (SIZE // 2)), GOOD),
    "an unknown array": (lambda: among(b'"other":[' + b"1," * (SIZE // 2) + b"1]"), GOOD),
    "unknown fields": (lambda: among(b",".join(b'"f%07d":1' % n for n in range(SIZE // 13))), GOOD),
    "a text in an array for a text": (lambda: among(b'"note":["' + b"x" * SIZE + b'"]'), GOOD),
    "an array of numbers for a text": (lambda: among(b'"note":[' + b"1," * (SIZE // 2) + b"1]"), MANY),
    "a document that breaks off": (lambda: flat(note="x" * SIZE)[:-1], NO_OBJECT),
    "digits": (lambda: among(b'"note":' + b"1" * SIZE), NO_OBJECT),
    "brackets": (lambda: among(b'"other":' + b"[" * (SIZE // 2) + b"]" * (SIZE // 2)), NO_OBJECT),
    "zero bytes": (lambda: bytes(SIZE), NO_OBJECT),
    "a field many times": (lambda: b"{" + b'"id":"a",' * (SIZE // 9) + b'"id":"a"}', MANY),
}


def taken(document: bytes, decoder: Decoder) -> tuple[list[str | None], float]:
    """Decode a document among a hundred others; returns the reasons, and the memory that it took as a multiple."""
    values = [*(flat(note=f"n{number}") for number in range(50)), document] * 2
    values.pop()
    count = len(values)
    columns = [pa.nulls(count, pa.binary()), pa.array(values, pa.binary()), pa.array(["t"] * count)]
    places = [pa.array([0] * count, pa.int32()), pa.array(range(count), pa.int64())]
    messages = pa.record_batch([*columns, *places], names=["key", "value", "topic", "partition", "offset"])
    before = _memory("VmRSS")
    # The kernel begins to count the peak anew.
    Path("/proc/self/clear_refs").write_text("5")
    reasons = decoder.decode(messages).column("_lsm_bad").to_pylist()
    return reasons, (_memory("VmHWM") - before) / len(document)


def _memory(name: str) -> int:
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name)]
    return int(line.split()[1]) * 1024


def measured() -> dict[str, tuple[str | None, int, float]]:
    """Decode each of the documents: its reason, the number of good documents beside it, and the memory."""
    decoder = Decoder(Envelope(COLUMNS, ("id",)))
    taken(b"x", decoder)
    found = {}
    for name, (make, _) in DOCUMENTS.items():
        reasons, times = taken(make(), decoder)
        found[name] = (reasons[50], reasons.count(None) - (reasons[50] is None), times)
    return found


@pytest.fixture(scope="module")
def measurements() -> dict[str, tuple[str | None, int, float]]:
    with ProcessPoolExecutor(1, get_context("spawn")) as other:
        return other.submit(measured).result()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_large_document_takes_a_few_times_its_bytes_and_no_other_suffers(
    measurements: dict[str, tuple[str | None, int, float]], name: str
) -> None:
    reason, others, times = measurements[name]
    expected = DOCUMENTS[name][1]
    assert (reason is None) if expected is None else str(reason).startswith(expected)
    assert len(str(reason)) < 200, "a reason quotes a little of the document"
    assert others == 100
    assert times < 7


@pytest.mark.parametrize("broken", [b"{", b'{"id":1', b'{"id":"%d"}', b'{"id":1.5%d}', b'{"id":"a%d","n":nul}'])
@pytest.mark.parametrize("count", [0, 1, 40])
def test_a_large_document_of_many_values_is_judged_the_same_beside_any_others(broken: bytes, count: int) -> None:
    columns = pa.schema([("id", pa.int64()), ("note", pa.string())])
    good = b'{"id":1,"other":[' + b"1," * (MOST_COMMAS + 1) + b"1]}"
    text, misfit = good.replace(b'"id":1', b'"id":"1"'), good.replace(b'"id":1', b'"id":"x"')
    others = [broken.replace(b"%d", b"%d" % number) for number in range(count)]
    for document, fits in ((good, True), (text, False), (misfit, False)):
        decoder = Decoder(Envelope(columns, ("id",)))
        for values in ([*others, document], [document, *others]):
            reasons = decoder.decode(kafka_messages([(None, value) for value in values])).column("_lsm_bad").to_pylist()
            assert (reasons[values.index(document)] is None) == fits


def test_a_tombstone_costs_no_more_than_a_row() -> None:
    decoder = Decoder(Envelope(COLUMNS, ("id",)))
    spent = {"rows": math.inf, "tombstones": math.inf}
    # The least of three trials in turns: other processes on the core only add to one.
    for name, count in 3 * (("rows", 100_000), ("tombstones", 1_000_000)):
        keys = pc.binary_join_element_wise('{"id":"', pc.cast(pa.array(range(count)), pa.string()), '"}', "")
        values = keys if name == "rows" else pa.nulls(count, pa.string())
        columns = [pc.cast(keys, pa.binary()), pc.cast(values, pa.binary()), pa.array(["t"] * count)]
        places = [pa.array([0] * count, pa.int32()), pa.array(range(count), pa.int64())]
        messages = pa.record_batch([*columns, *places], names=["key", "value", "topic", "partition", "offset"])
        before, begun = _memory("VmRSS"), time.process_time()
        Path("/proc/self/clear_refs").write_text("5")
        good = sum(batch.column("_lsm_bad").null_count for batch in decoder.decoded([messages]))
        spent[name] = min(spent[name], (time.process_time() - begun) / count)
        assert good == count
        assert _memory("VmHWM") - before < 100 << 20
    assert spent["tombstones"] < 1.5 * spent["rows"]
