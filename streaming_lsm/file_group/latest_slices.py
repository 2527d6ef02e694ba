"""Find the latest slice of every file group by the columns of a listing.

Most file groups of a large table are *plain*: they have one visible file, a base file. Their slices are found for all
of them at once, and built when they are asked for. The files of every other group are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, overload

import numpy as np
import pyarrow as pa

from streaming_lsm.arrow.columns import Flags, Int64s, flags, int64s, pc, text_list, texts_at
from streaming_lsm.file_group.file_slice import BaseFile, FileSlice, LogFile
from streaming_lsm.format.actions.file_state import FileState
from streaming_lsm.format.table.file_names import BaseFileName, DataFileName, parse_file_name
from streaming_lsm.metadata.listed_files import ListedFiles
from streaming_lsm.storage.base import FileEntry, Listing
from streaming_lsm.timeline.timeline import Timeline

_BASE = r"\A(?P<file_id>[A-Za-z0-9-]+)_[A-Za-z0-9-]+_(?P<instant>[0-9]{1,32})\.parquet\z"
"""The names of base files that `parse_file_name` accepts, in Arrow's form; those of logs have other parts."""


class View(Protocol):
    """Finds the visible files of one partition; see `FileSystemView`."""

    @property
    def timeline(self) -> Timeline:
        """The instants whose files are visible."""
        ...

    def visible_name(self, entry: FileEntry) -> DataFileName | None:
        """Parse the name of a visible data file; None for every other entry."""
        ...

    def visible_files(self, entries: Listing) -> Iterator[BaseFile | LogFile]:
        """List the visible base files and logs of a partition."""
        ...

    def is_replaced(self, partition: str, file_id: str) -> bool:
        """Return whether a file group was replaced."""
        ...

    def slice_of(self, partition: str, group: str, bases: list[BaseFile], logs: list[LogFile]) -> FileSlice:
        """Form the latest slice of a file group from its visible files."""
        ...


@dataclass(frozen=True, eq=False)
class FileSlices(Sequence[FileSlice]):
    """Latest slices of file groups, ordered by partition and file id; those of plain groups are built when asked for.

    Attributes:
        partitions: partition paths, ascending; some may have no slice.
        partition: the partition of each slice, an index into `partitions`, int64 (slices,).
        file_ids: file ids (slices,).
        names: the names of the only files of plain groups; those of others mean nothing (slices,).
        sizes: the sizes of these, int64 (slices,).
        built: the slices of other groups, by their numbers.
        numbers: numbers of the slices, int64 (slices,).
        left_out: partitions of the table that were not listed.
    """

    partitions: tuple[str, ...]
    partition: Int64s
    file_ids: pa.StringArray
    names: pa.StringArray
    sizes: Int64s
    numbers: Int64s
    built: Mapping[int, FileSlice] = field(default_factory=dict)
    left_out: int = 0

    @staticmethod
    def of(slices: Iterable[FileSlice]) -> FileSlices:
        """Take slices that are built, in their order."""
        if isinstance(slices, FileSlices):
            return slices
        built = list(slices)
        paths = list(dict.fromkeys(found.partition_path for found in built))
        places = {path: place for place, path in enumerate(paths)}
        partition = np.array([places[found.partition_path] for found in built], np.int64)
        file_ids = pa.array([found.file_id for found in built], pa.string())
        none = np.zeros(len(built), np.int64)
        return FileSlices(
            tuple(paths), partition, file_ids, file_ids, none, np.arange(len(built)), dict(enumerate(built))
        )

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, place: int) -> FileSlice: ...
    @overload
    def __getitem__(self, place: slice) -> FileSlices: ...
    def __getitem__(self, place: int | slice) -> FileSlice | FileSlices:
        if isinstance(place, slice):
            return self.at(np.arange(len(self))[place])
        return next(iter(self.at(np.arange(len(self))[[place]])))

    def __iter__(self) -> Iterator[FileSlice]:
        columns = (self.numbers, self.partition, self.file_ids, self.names, self.sizes)
        for begin in range(0, len(self), _TOGETHER):
            part = (column[begin : begin + _TOGETHER] for column in columns)
            numbers, partition, file_ids, names, sizes = (column.tolist() for column in part)
            for number, place, file_id, name, size in zip(numbers, partition, file_ids, names, sizes, strict=True):
                found = self.built.get(number)
                yield found or _plain(self.partitions[place], file_id, name, size)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(one == another for one, another in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def at(self, places: Int64s | Flags) -> FileSlices:
        """Return some of the slices, by their indices or flags."""
        nth: Int64s = np.arange(len(self))[places]
        numbers = self.numbers[nth]
        built = (
            {number: self.built[number] for number in numbers.tolist() if number in self.built} if self.built else {}
        )
        return replace(
            self,
            partition=self.partition[nth],
            file_ids=texts_at(self.file_ids, nth),
            names=texts_at(self.names, nth),
            sizes=self.sizes[nth],
            numbers=numbers,
            built=built,
        )

    def without_kept(self) -> FileSlices:
        """Return the slices without deletes that were kept, see `FileSlice.without_kept`."""
        return replace(self, built={number: found.without_kept() for number, found in self.built.items()})

    def base_files(self) -> FileSlices:
        """Return the slices with a base file, without their logs."""
        built = {number: replace(found, logs=()) for number, found in self.built.items()}
        bare = [number for number, found in built.items() if found.base is None]
        found = replace(self, built=built)
        return found.at(~np.isin(self.numbers, bare)) if bare else found

    @property
    def partitions_used(self) -> int:
        """Number of partitions that have a slice."""
        return len(np.unique(self.partition))

    def groups_among(self, groups: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
        """Return those of some file groups, by partition path and file id, that have a slice."""
        wanted = pa.array([file_id for _, file_id in groups], pa.string())
        near = np.flatnonzero(flags(pc.is_in(self.file_ids, value_set=wanted)))
        found = zip(self.partition[near].tolist(), text_list(texts_at(self.file_ids, near)), strict=True)
        return {(self.partitions[place], file_id) for place, file_id in found}.intersection(groups)

    def state(self) -> FileState:
        """Compute the state of the files of all slices."""
        built = [self.built[number] for number in self.numbers.tolist() if number in self.built] if self.built else []
        others = self.at(~np.isin(self.numbers, list(self.built))) if built else self
        folders = pa.array([f"{path}/" if path else "" for path in self.partitions], pa.string())
        paths: Any = pc.binary_join_element_wise(texts_at(folders, others.partition), others.names, "")
        plain = FileState.of_encoded(paths.cast(pa.binary()).to_pylist())
        return plain.changed((), (path for found in built for path in found.paths))


_TOGETHER = 1 << 12
"""Slices whose columns are converted together while they are iterated."""


def _plain(partition: str, file_id: str, name: str, size: int) -> FileSlice:
    parsed = parse_file_name(name)
    assert isinstance(parsed, BaseFileName)
    return FileSlice(partition, file_id, BaseFile(_path(partition, name), parsed, size), ())


def _path(partition: str, name: str) -> str:
    return f"{partition}/{name}" if partition else name


def latest_slices(view: View, listed: ListedFiles) -> FileSlices:
    """Find the latest slice of every file group.

    Args:
        view: tells which files are visible, and which file groups were replaced.
        listed: the files of the table, or of some of its partitions.

    Raises:
        UnsupportedTable: see `FileSystemView.visible_files`.
    """
    return _Latest(view, listed).slices()


class _Latest:
    """One look at a listing."""

    def __init__(self, view: View, listed: ListedFiles) -> None:
        self._view, self._listed = view, listed
        # An order of partitions in which their numbers ascend with their paths.
        paths = sorted(listed.partitions)
        rank = {path: place for place, path in enumerate(paths)}
        self._paths = tuple(paths)
        self._partition = np.array([rank[path] for path in listed.partitions], np.int64)[listed.partition]

    def slices(self) -> FileSlices:
        rows, file_ids, files = self._visible()
        ids, code = _ranked(file_ids)
        pair, first, group = np.unique(
            self._partition[rows] * max(1, len(ids)) + code, return_index=True, return_inverse=True
        )
        count = np.bincount(group, minlength=len(pair))
        other = np.zeros(len(pair), np.bool_)
        other[group[np.isin(rows, list(files))]] = True
        other |= count > 1
        partition, id_code = pair // max(1, len(ids)), pair % max(1, len(ids))
        group_ids = texts_at(ids, id_code)
        kept = self._not_replaced(partition, group_ids)
        built = self._built(rows, group, other & kept, files, partition, group_ids)
        row = rows[first]
        found = FileSlices(
            partitions=self._paths,
            partition=partition,
            file_ids=group_ids,
            names=texts_at(self._listed.names, row),
            sizes=self._listed.sizes[row],
            numbers=np.arange(len(pair)),
            built=built,
            left_out=self._listed.left_out,
        )
        return found if kept.all() else found.at(kept)

    def _visible(self) -> tuple[Int64s, pa.StringArray, dict[int, BaseFile | LogFile]]:
        """Return the rows of visible files, ascending, their file ids, and those that are not in the form `_BASE`."""
        parsed: Any = pc.extract_regex(self._listed.names, _BASE)
        is_base = flags(parsed.is_valid())
        rows = np.flatnonzero(is_base)
        instants: Any = parsed.field("instant").take(pa.array(rows)).dictionary_encode()
        codes = int64s(instants.indices)
        _, firsts = np.unique(codes, return_index=True)
        # The files of an instant are visible, or none of them.
        visible = np.array([self._is_visible(int(rows[first])) for first in firsts], np.bool_)
        rows = rows[visible[codes]]
        files = {
            row: file
            for row in np.flatnonzero(~is_base).tolist()
            for file in self._view.visible_files([self._entry(row)])
        }
        if not files:
            return rows, parsed.field("file_id").take(pa.array(rows)), files
        others = np.array(list(files), np.int64)
        ids = pa.array([file.name.file_id for file in files.values()], pa.string())
        both: Any = pa.concat_arrays([parsed.field("file_id").take(pa.array(rows)), ids])
        every = np.concatenate((rows, others))
        order = np.argsort(every)
        return every[order], both.take(pa.array(order)), files

    def _is_visible(self, row: int) -> bool:
        return self._view.visible_name(self._entry(row)) is not None

    def _entry(self, row: int) -> FileEntry:
        path = _path(self._paths[self._partition[row]], self._listed.names[row].as_py())
        return FileEntry(path, int(self._listed.sizes[row]), is_dir=False, modified_ms=0)

    def _not_replaced(self, partition: Int64s, file_ids: pa.StringArray) -> Flags:
        kept = np.ones(len(partition), np.bool_)
        replaced = self._view.timeline.replaced_groups
        touched = np.array([bool(replaced.get(path)) for path in self._paths], np.bool_)
        for place in np.flatnonzero(touched[partition]).tolist() if touched.any() else ():
            kept[place] = not self._view.is_replaced(self._paths[partition[place]], file_ids[place].as_py())
        return kept

    def _built(
        self,
        rows: Int64s,
        group: Int64s,
        wanted: Flags,
        files: Mapping[int, BaseFile | LogFile],
        partition: Int64s,
        file_ids: pa.StringArray,
    ) -> dict[int, FileSlice]:
        """Build the slices of the wanted groups from their visible files."""
        members: dict[int, list[int]] = {}
        mine = np.flatnonzero(wanted[group])
        for number, row in zip(group[mine].tolist(), rows[mine].tolist(), strict=True):
            members.setdefault(number, []).append(row)
        found = {}
        for number, of_group in members.items():
            every = [
                file
                for row in of_group
                for file in ([files[row]] if row in files else self._view.visible_files([self._entry(row)]))
            ]
            bases = [file for file in every if isinstance(file, BaseFile)]
            logs = [file for file in every if isinstance(file, LogFile)]
            path, file_id = self._paths[partition[number]], file_ids[number].as_py()
            found[number] = self._view.slice_of(path, file_id, bases, logs)
        return found


def _ranked(values: pa.StringArray) -> tuple[pa.StringArray, Int64s]:
    """Number values in their order; return each once, ascending, and the numbers."""
    encoded: Any = values.dictionary_encode()
    order: Any = pc.sort_indices(encoded.dictionary)
    rank = np.empty(len(order), np.int64)
    rank[np.asarray(order)] = np.arange(len(order))
    return encoded.dictionary.take(order), rank[int64s(encoded.indices)]
