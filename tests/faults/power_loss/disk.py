"""Model what of the recorded operations is on the disk after a power loss.

It is the weakest model that POSIX and the manual pages of ``fsync`` permit, with renames atomic:

- The content of a file is durable by an fsync of the file. Before that it may be the last durable content (of a new
  file: empty), any part of the new one, or of its length without its bytes (zeros, or old blocks of the disk).
- A change of a folder's entries (create, link, unlink, rename, mkdir, rmdir) is durable by an fsync of the folder.
  Before that each change may be kept or lost alone, whatever became of earlier and later ones, in the same folder or
  others.
- An fsync of a file makes no entry durable; an fsync of a folder makes neither contents durable nor its own entry.

Real file systems promise more: ext4 (``data=ordered``) and xfs keep the order of changes of entries, and an fsync makes
all changes before it durable, also those of other folders. btrfs and f2fs keep each file's log alone. A table that is
sound under every loss of the model is so on each of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.power_loss.operations import (
    Enter,
    EntryChange,
    Leave,
    Move,
    Operation,
    SyncFile,
    SyncFolder,
    Tree,
    Write,
)

ROOT = 0
"""The node of the recorded folder."""

Entries = dict[str, int]


@dataclass
class Disk:
    """What is durable, and what is not yet.

    Attributes:
        folders: durable entries of each folder.
        files: durable content of each file.
        pending: changes of entries that are not durable, in the order in which they were made.
        written: contents that are not durable.
    """

    folders: dict[int, Entries] = field(default_factory=lambda: {ROOT: {}})
    files: dict[int, bytes] = field(default_factory=dict)
    pending: list[EntryChange] = field(default_factory=list)
    written: dict[int, bytes] = field(default_factory=dict)

    def copy(self) -> Disk:
        """A copy to which operations can be applied."""
        folders = {node: dict(entries) for node, entries in self.folders.items()}
        return Disk(folders, dict(self.files), list(self.pending), dict(self.written))

    def apply(self, operation: Operation) -> None:
        """Make one operation."""
        match operation:
            case Enter(node=node, is_folder=True):
                self.folders.setdefault(node, {})
                self.pending.append(operation)
            case Enter(node=node):
                self.files.setdefault(node, b"")
                self.pending.append(operation)
            case Leave() | Move():
                self.pending.append(operation)
            case Write(node=node, offset=offset, data=data):
                before = self.written.get(node, self.files[node])
                self.written[node] = before[:offset].ljust(offset, b"\0") + data + before[offset + len(data) :]
            case SyncFile(node=node):
                self.files[node] = self.written.pop(node, self.files[node])
            case SyncFolder(node=node):
                for change in self.pending:
                    if change.folder == node:
                        _change(self.folders[node], change)
                self.pending = [change for change in self.pending if change.folder != node]
            case _:
                pass

    def visible(self) -> Tree:
        """What every process sees before the power is lost."""
        return self.after_loss(range(len(self.pending)), self.written)

    def after_loss(self, kept: Collection[int], contents: Mapping[int, bytes]) -> Tree:
        """What is there after a power loss.

        Args:
            kept: places in `pending` of the changes that are kept.
            contents: contents of files, where they are not the durable ones.
        """
        folders = {node: dict(entries) for node, entries in self.folders.items()}
        for place in sorted(kept):
            _change(folders[self.pending[place].folder], self.pending[place])
        return dict(self._walk(folders, contents, ROOT, ""))

    def _walk(
        self, folders: Mapping[int, Entries], contents: Mapping[int, bytes], node: int, prefix: str
    ) -> Iterator[tuple[str, bytes | None]]:
        for name, child in sorted(folders[node].items()):
            if child in folders:
                yield prefix + name, None
                yield from self._walk(folders, contents, child, f"{prefix}{name}/")
            else:
                yield prefix + name, contents.get(child, self.files[child])


def _change(entries: Entries, change: EntryChange) -> None:
    match change:
        case Enter(name=name, node=node):
            entries[name] = node
        case Leave(name=name):
            entries.pop(name, None)
        case Move(source=source, name=name, node=node):
            # Atomic: the entry of the new name is there if the old one is gone, also if its creation was lost.
            entries.pop(source, None)
            entries[name] = node


def read_tree(root: Path) -> Tree:
    """What is in a folder of the real file system."""
    tree: Tree = {}
    for path in sorted(root.rglob("*")):
        tree[path.relative_to(root).as_posix()] = None if path.is_dir() else path.read_bytes()
    return tree


def write_tree(root: Path, tree: Tree) -> None:
    """Make a folder of the real file system that has this content."""
    root.mkdir()
    for path, content in tree.items():  # folders come before what is in them
        if content is None:
            (root / path).mkdir()
        else:
            (root / path).write_bytes(content)
