"""Rows that the benchmarks write: orders with eleven columns, many versions of each key."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

KEY, ORDERING = "order_id", "updated_at"
REPEATED = ("country", "status", "item", "qty", "discount")
"""Columns whose values repeat often enough for a Parquet dictionary."""
_COUNTRIES = pa.array(["AT", "BE", "BR", "CH", "CN", "DE", "DK", "ES", "FR", "GB", "IN", "IT", "JP", "NL", "PL", "US"])
_STATES = pa.array(["created", "paid", "packed", "sent", "delivered", "returned"])
_WORDS = pa.array(["brass", "copper", "green", "heavy", "large", "linen", "metal", "small", "steel", "white", "wooden"])
_EPOCH_US = 1_767_225_600_000_000


def orders(rows: int, keys: int, seed: int) -> pa.Table:
    """`rows` events over `keys` orders in random order; 17-byte keys, updated later the higher the seed."""
    chance = np.random.default_rng(seed)
    number = chance.integers(0, keys, rows)
    moment = _EPOCH_US + seed * 3_600_000_000 + np.arange(rows) * 1_000
    return pa.table(
        {
            KEY: pc.binary_join_element_wise("order", padded(number), ""),
            "customer_id": pa.array(number % 50_021),
            "country": _pick(_COUNTRIES, chance, rows),
            "status": _pick(_STATES, chance, rows),
            "item": _phrase(chance, rows),
            "qty": pa.array(chance.integers(1, 20, rows).astype(np.int32)),
            "price": pa.array(chance.integers(100, 100_000, rows) / 100.0),
            "discount": pa.array(chance.integers(0, 10, rows) / 100.0),
            "express": pa.array(chance.random(rows) < 0.2),
            "created_at": pa.array(_EPOCH_US + number * 1_000_000, pa.timestamp("us", "UTC")),
            ORDERING: pa.array(moment, pa.timestamp("us", "UTC")),
        }
    )


def padded(numbers: np.ndarray, width: int = 12) -> pa.Array:  # type: ignore[type-arg]
    """Numbers as decimal text of one width."""
    return pc.utf8_lpad(pa.array(numbers).cast(pa.string()), width, "0")


def uuids(numbers: np.ndarray) -> pa.Array:  # type: ignore[type-arg]
    """Return a text of the form of a UUID for each number, which looks random, and is always the same."""
    words = np.stack([_mixed(numbers.astype(np.uint64) * 2 + half) for half in (0, 1)], axis=1)
    digits = words.astype(">u8").view(np.uint8).reshape(len(numbers), 16)
    texts = np.full((len(numbers), 36), ord("-"), np.uint8)
    places = np.delete(np.arange(36), [8, 13, 18, 23])
    nibbles = np.stack([digits >> 4, digits & 15], axis=2).reshape(len(numbers), 32)
    texts[:, places] = np.frombuffer(b"0123456789abcdef", np.uint8)[nibbles]
    ends = np.arange(len(numbers) + 1, dtype=np.int32) * 36
    return pa.StringArray.from_buffers(len(numbers), pa.py_buffer(ends), pa.py_buffer(texts))


def _mixed(values: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """Map 64-bit numbers to others one to one, as splitmix64 does."""
    found = values * np.uint64(0x9E3779B97F4A7C15)
    found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return found ^ (found >> np.uint64(31))


def _pick(values: pa.Array, chance: np.random.Generator, rows: int) -> pa.Array:  # type: ignore[type-arg]
    return values.take(pa.array(chance.integers(0, len(values), rows)))


def _phrase(chance: np.random.Generator, rows: int) -> pa.Array:  # type: ignore[type-arg]
    return pc.binary_join_element_wise(*(_pick(_WORDS, chance, rows) for _ in range(3)), " ")
