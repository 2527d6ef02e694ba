"""Objects as other programs see them, tombstones included."""

from __future__ import annotations

import shutil
from pathlib import Path

import obstore

from streaming_lsm.storage.objects.connection import connect


def raw_object(uri: str, path: str) -> bytes:
    """The content of one object."""
    scheme, container, prefix = _parts(uri)
    return bytes(obstore.get(connect(scheme, container).store, f"{prefix}/{path}").bytes())


def raw_keys(uri: str) -> list[str]:
    """The paths of all objects below a root."""
    scheme, container, prefix = _parts(uri)
    found = [meta["path"] for chunk in obstore.list(connect(scheme, container).store, prefix) for meta in chunk]
    return sorted(key.removeprefix(f"{prefix}/") for key in found)


def delete_all(uri: str) -> None:
    """Delete everything below a root, which may be a folder of a disk."""
    if "://" not in uri:
        shutil.rmtree(uri)
        return
    scheme, container, prefix = _parts(uri)
    obstore.delete(connect(scheme, container).store, [f"{prefix}/{path}" for path in raw_keys(uri)])


def download(uri: str, folder: Path) -> Path:
    """Copy all objects below a root to a folder."""
    for path in raw_keys(uri):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(raw_object(uri, path))
    return folder


def _parts(uri: str) -> tuple[str, str, str]:
    scheme, _, rest = uri.partition("://")
    container, _, prefix = rest.partition("/")
    return scheme, container, prefix
