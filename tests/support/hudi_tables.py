"""Tables that real Hudi wrote, with what it reads back of them."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "golden" / "data" / "tables"
MANIFESTS: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))
}
"""What each table shows, how it was written, and the reads that are stored with it."""


def unpacked(name: str, folder: Path) -> Path:
    """A table's folder, made in `folder`."""
    with tarfile.open(FOLDER / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return folder / name


def reads() -> Iterator[tuple[str, str, dict[str, str]]]:
    """Table, kind of read and its parameters, for every expectation that is stored."""
    for name, manifest in MANIFESTS.items():
        for kind, found in manifest["reads"].items():
            for read in found if isinstance(found, list) else [found]:
                yield name, kind, read
