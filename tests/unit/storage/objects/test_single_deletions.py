"""Deletions from a store that takes them one at a time, and answers one of a missing object with an error."""

from __future__ import annotations

from pathlib import Path

import obstore
from obstore.store import LocalStore

from streaming_lsm.storage.objects.conditional import ConditionalObjects
from streaming_lsm.storage.objects.connection import Connection

NAMES = [f"f{number:02}" for number in range(30)]


def test_a_missing_object_keeps_none_of_the_others_from_deletion(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    objects = ConditionalObjects(Connection(store, store), str)
    for name in NAMES:
        obstore.put(store, name, b"")
    objects.remove(["missing", *NAMES])
    assert [*tmp_path.iterdir()] == []
    objects.remove(["missing"])
