"""Enumerate what a power loss may leave of a recording: every prefix, with permitted subsets of what is not durable.

A *loss* is one such outcome. Where the subsets are few, all are tried; else all lost, all kept, each change lost alone
and kept alone, each pair so, and random subsets with a fixed seed. Contents that are not durable are varied as well.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, combinations, product

from streaming_lsm.storage.temporary_file import is_temporary
from tests.faults.power_loss.disk import Disk
from tests.faults.power_loss.operations import EntryChange, Leave, Operation, Returned, Tree
from tests.faults.power_loss.recorder import Recording

_ALL_OF = 32
"""So many subsets are tried all."""
_RANDOM = 8
_NUMBERS = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}-[0-9a-f-]{27}|\d+")


@dataclass(frozen=True)
class Loss:
    """What is there after the power was lost, and how it came to be.

    Attributes:
        tree: the files and folders.
        done: number of operations that were made.
        returned: number of calls of the library that had returned.
        what: the last operation, what of the pending changes was lost, and what became of contents.
        kind: the same for losses after the same operation on such a file, with the same changes lost.
    """

    tree: Tree
    done: int
    returned: int
    what: str
    kind: str


def losses(recording: Recording, since: int = 0) -> Iterator[Loss]:
    """The losses of a recording, each tree once for each number of returned calls.

    Args:
        since: the first prefix that is tried.
    """
    seen: set[tuple[int, int]] = set()
    returned = 0
    for done, disk in recording.prefixes():
        last = recording.operations[done - 1] if done else None
        returned += isinstance(last, Returned)
        if done < since:
            continue
        for kept, contents, how in _outcomes(disk, done):
            tree = disk.after_loss(kept, contents)
            key = (returned, hash(frozenset(tree.items())))
            if key not in seen:
                seen.add(key)
                lost = [change for place, change in enumerate(disk.pending) if place not in kept]
                what = f"the last {_named(last)}; lost: {_listed(lost)}"
                told = f"after {done} operations, {what}; contents: {how}"
                yield Loss(tree, done, returned, told, _NUMBERS.sub("#", what))


def one_of_each_kind(found: Iterable[Loss]) -> list[Loss]:
    """A loss of each kind; of kinds of several, such as those that differ in contents, now the first, now the next."""
    kinds: dict[str, list[Loss]] = {}
    for loss in found:
        kinds.setdefault(loss.kind, []).append(loss)
    return [alike[number % len(alike)] for number, alike in enumerate(kinds.values())]


def _outcomes(disk: Disk, seed: int) -> Iterator[tuple[frozenset[int], Mapping[int, bytes], str]]:
    contents = list(_contents(disk))
    subsets = _subsets(len(disk.pending), seed)
    if len(contents) * len(subsets) <= _ALL_OF * 4:
        yield from ((kept, content, how) for kept, (how, content) in product(subsets, contents))
        return
    for number, kept in enumerate(subsets):
        how, content = contents[number % len(contents)]
        yield kept, content, how
    for how, content in contents:
        yield frozenset(range(len(disk.pending))), content, how


def _subsets(count: int, seed: int) -> list[frozenset[int]]:
    everything = frozenset(range(count))
    if 2**count <= _ALL_OF:
        return [frozenset(kept) for size in range(count, -1, -1) for kept in combinations(range(count), size)]
    few = [frozenset(one) for size in (0, 1, 2) for one in combinations(range(count), size)]
    chance = random.Random(seed)
    some = [frozenset(place for place in range(count) if chance.random() < 0.5) for _ in range(_RANDOM)]
    return list(dict.fromkeys([*(everything - lost for lost in few), *few, *some]))


def _contents(disk: Disk) -> Iterator[tuple[str, Mapping[int, bytes]]]:
    """Contents of the files that are not durable."""
    yield "as they were durable", {}
    if not disk.written:
        return
    # Nothing reads a temporary file.
    variants = ["as they were written"] if disk.written.keys() <= _temporary(disk) else list(_VARIANTS)
    for name, change in ((name, _VARIANTS[name]) for name in variants):
        yield name, {node: change(disk.files[node], new) for node, new in disk.written.items()}
    if len(disk.written) > 1:
        for node, new in disk.written.items():
            yield f"that of {node} as it was written", {node: new}
            yield f"that of {node} lost", {other: kept for other, kept in disk.written.items() if other != node}


def _temporary(disk: Disk) -> set[int]:
    """Files that have a temporary name and no other."""
    names = [(change.node, is_temporary(change.name)) for change in disk.pending if not isinstance(change, Leave)]
    entries = chain.from_iterable(entries.items() for entries in disk.folders.values())
    names += [(node, is_temporary(name)) for name, node in entries]
    return {node for node, temporary in names if temporary} - {node for node, temporary in names if not temporary}


_VARIANTS: Mapping[str, Callable[[bytes, bytes], bytes]] = {
    "as they were written": lambda old, new: new,
    "one half": lambda old, new: new[: max(len(old), (len(old) + len(new)) // 2)],
    "the length without the bytes": lambda old, new: old.ljust(len(new), b"\0"),
    "one half, then zeros": lambda old, new: new[: (len(old) + len(new)) // 2].ljust(len(new), b"\0"),
    "zeros, then one half": lambda old, new: (b"\0" * (len(new) // 2)) + new[len(new) // 2 :],
    "old blocks of the disk": lambda old, new: old + (b"\xa5PAR1{old}\n" * len(new))[: len(new) - len(old)],
}


def _named(operation: Operation | None) -> str:
    return f"{type(operation).__name__} {operation.path}".strip() if operation else "none"


def _listed(changes: Iterable[EntryChange]) -> str:
    return ", ".join(f"{'-' if isinstance(change, Leave) else '+'}{change.path}" for change in changes) or "nothing"
