"""Handle all cells at once, as many are, beside the tests as they are, in which they are few and handled one by one."""

from __future__ import annotations

import pytest

from streaming_lsm.format.hfile import cells, reader, writer


@pytest.fixture(params=["one by one", "at once"])
def each_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test twice, the second time as if no number of cells were few."""
    if request.param == "at once":
        monkeypatch.setattr(cells, "_FEW_BYTES", -1)
        monkeypatch.setattr(reader, "_FEW_CELLS", -1)
        monkeypatch.setattr(writer, "_FEW_CELLS", -1)
