"""Tell which texts Java and Arrow may order differently: Java compares UTF-16 units, Arrow the bytes of UTF-8."""

from __future__ import annotations

from typing import Any

import numpy as np

from streaming_lsm.arrow.buffers import bytes_of
from streaming_lsm.arrow.columns import Flags

_FROM_E000 = 0xEE
"""First byte of U+E000 and of all later characters. Those beyond U+FFFF are smaller for Java than those before."""


def may_differ(texts: Any) -> Flags:
    """Flag the texts whose order with some other text may differ, bool (n,); a null is not flagged.

    Args:
        texts: an array of texts, or of their UTF-8, n.
    """
    offsets, data = bytes_of(texts)
    if not len(data) or data.max() < _FROM_E000:
        return np.zeros(len(texts), np.bool_)
    through = np.append(0, np.cumsum(data >= _FROM_E000))
    return np.asarray(np.diff(through[offsets]) > 0)
