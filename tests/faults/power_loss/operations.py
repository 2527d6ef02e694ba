"""Define the file-system operations of a recording, and the model of what of them is on the disk.

A *node* is a file or folder by a number of its own, as an inode. An *entry* is a name in a folder, which leads to a
node: a file has its content, and each folder that it is in has an entry of it, and each is made durable alone.
"""

from __future__ import annotations

from dataclasses import dataclass

Tree = dict[str, bytes | None]
"""Contents of files by path, with ``/`` between the parts; None for a folder."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One call of the operating system.

    Attributes:
        path: the file or folder, relative to the recorded folder.
        site: the method of the storage that made the call.
    """

    path: str
    site: str


@dataclass(frozen=True, slots=True)
class Enter(Operation):
    """Create a file or folder, or link a file: `name` in `folder` leads to `node`, in place of what it led to."""

    folder: int
    name: str
    node: int
    is_folder: bool = False


@dataclass(frozen=True, slots=True)
class Leave(Operation):
    """Unlink a file, or remove a folder."""

    folder: int
    name: str


@dataclass(frozen=True, slots=True)
class Move(Operation):
    """Rename a file inside its folder, over another one if there is one; atomic."""

    folder: int
    source: str
    name: str
    node: int


@dataclass(frozen=True, slots=True)
class Write(Operation):
    """Write bytes at an offset."""

    node: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class SyncFile(Operation):
    """Make the content of a file durable; the entry that leads to it is not."""

    node: int


@dataclass(frozen=True, slots=True)
class SyncFolder(Operation):
    """Make the entries of a folder durable; its own entry in the folder above is not."""

    node: int


@dataclass(frozen=True, slots=True)
class Returned(Operation):
    """A call of the library returned to its user: what it did is acknowledged.

    Attributes:
        value: what it returned.
    """

    value: object = None


EntryChange = Enter | Leave | Move
