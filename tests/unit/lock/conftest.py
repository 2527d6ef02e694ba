"""Shared by the tests of the timeline."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _disk_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    # Processes die in these tests, machines do not; waiting for the disk thousands of times would only take time.
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
