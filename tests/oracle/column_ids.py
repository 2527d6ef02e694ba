"""The ids of columns, by which a column that was renamed is found in older files (01-table.md, "Schema-on-read")."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .table import Completed

Names = dict[str, str | None]
"""The name in a file, by the name that the table has; None if the file cannot have the column."""


class ColumnIds:
    """The versions of the columns of a table, as of the writes that are visible."""

    def __init__(self, root: Path, visible: dict[str, Completed]) -> None:
        newest = max(visible.values(), key=lambda write: write.completion, default=None)
        self._now = None if newest is None else _latest(newest)
        self._told = {instant: _latest(write) for instant, write in visible.items()} if self._now else {}
        self._versions = _versions(root, visible) if self._now else []

    def names_in(self, instant: str) -> Names:
        """Return where the files of a write have the columns; nothing if under their names."""
        if self._now is None:
            return {}
        told = self._told.get(instant) or next(
            (one for one in self._versions if one["version_id"] <= int(instant)), None
        )
        if told is None:
            return {}
        then = {field["id"]: field["name"] for field in told["fields"]}
        names: Names = {field["name"]: then.get(field["id"]) for field in self._now["fields"]}
        old, new = dict(_inside(told["fields"])), dict(_inside(self._now["fields"]))
        if any(new.get(number, name) != name for number, name in old.items()):
            raise NotImplementedError("renamed fields inside columns")
        return names


def _latest(write: Completed) -> Any:
    text = (write.metadata().get("extraMetadata") or {}).get("latest_schema")
    return json.loads(text) if text else None


def _versions(root: Path, visible: dict[str, Completed]) -> list[Any]:
    """All versions, the newest first, from the file of the newest visible write that has one."""
    found = {
        path.name.split(".")[0].split("_")[0]: path for path in (root / ".hoodie" / ".schema").glob("*.schemacommit")
    }
    for instant in sorted(found, reverse=True):
        if instant in visible:
            versions = json.loads(found[instant].read_text(encoding="utf-8"))["schemas"]
            return sorted(versions, key=lambda one: -int(one["version_id"]))
    return []


def _inside(fields: list[Any]) -> Iterator[tuple[int, str]]:
    """The ids and names of fields that are inside columns."""
    for field in fields:
        yield from _of_type(field["type"])


def _of_type(kind: Any) -> Iterator[tuple[int, str]]:
    if isinstance(kind, str):
        return
    for field in kind.get("fields", ()):
        yield int(field["id"]), field["name"]
        yield from _of_type(field["type"])
    for child in ("element", "value"):
        if child in kind:
            yield from _of_type(kind[child])
