"""Check paths of the storage interface."""

from __future__ import annotations


def checked_path(path: str) -> str:
    """Return a path if it is plainly inside the root, that is without empty parts, ``.`` and ``..``.

    Raises:
        ValueError: it is not.
    """
    if path == "":
        return path
    if "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError(f"{path!r} is not a path inside the table's folder")
    return path


def checked_name(name: str) -> str:
    """Return the name of a file; raises `ValueError` if it is not a single part of a path."""
    if not name or "/" in checked_path(name):
        raise ValueError(f"{name!r} is not a name inside a folder")
    return name
