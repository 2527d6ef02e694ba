"""Build and combine dictionary arrays of texts, so that work per distinct value runs once per dictionary entry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streaming_lsm.arrow.columns import pc


def codes_of(values: pa.DictionaryArray[Any, Any]) -> npt.NDArray[np.int32]:
    """Return the indices into the dictionary; `values` has no nulls."""
    return np.asarray(values.indices, np.int32)


def texts_of(values: pa.DictionaryArray[Any, Any]) -> list[str]:
    """Return the entries of the dictionary."""
    texts: list[str] = pc.cast(values.dictionary, pa.string()).to_pylist()
    return texts


def unique(codes: npt.NDArray[np.int32], texts: Sequence[str]) -> pa.DictionaryArray[Any, Any]:
    """Build a dictionary array (int32 to string) with one entry per distinct text; callers group rows by entry."""
    places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    remap = np.array([places[text] for text in texts], np.int32)
    indices = remap[codes] if len(codes) else codes
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), pa.array(list(places), pa.string()))


def pair_codes(
    left: pa.DictionaryArray[Any, Any], right: pa.DictionaryArray[Any, Any]
) -> tuple[npt.NDArray[np.int32], list[tuple[int, int]]]:
    """Number the distinct pairs of entries of two arrays of one length.

    Returns:
        int32 per row: the number of its pair; for each number, the indices into the two dictionaries.
    """
    width = max(len(right.dictionary), 1)
    pairs = pc.dictionary_encode(pa.array(codes_of(left).astype(np.int64) * width + codes_of(right)))
    return codes_of(pairs), [divmod(code, width) for code in pairs.dictionary.to_pylist()]
