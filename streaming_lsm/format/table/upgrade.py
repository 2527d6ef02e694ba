"""Compute the changes of ``hoodie.properties`` for an upgrade or downgrade between table versions 8, 9 and 10.

See docs/format/03-native-logs.md, "Version gating"; docs/format/09-hudi-1.2.md, "2. hoodie.properties".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from streaming_lsm.errors import UnsupportedTable
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.format.table.merge_mode import (
    DELETE_FIELD_KEY,
    DELETE_MARKER_KEY,
    LEGACY_PAYLOAD_KEY,
    PARTIAL_KEY,
    PAYLOAD_KEY,
    MergeSettings,
    is_plain,
    merge_keys,
    merge_settings,
    payload_class,
    payload_keys,
)
from streaming_lsm.format.table.properties import (
    CURRENT_VERSION,
    LAYOUT_VERSION_KEY,
    META_FIELDS_KEY,
    STORAGE_LAYOUT_KEY,
    WRITE_VERSIONS,
    ordering_fields,
)

PropertyChanges = dict[str, str | None]
"""Key -> new value; None removes the key."""

_VERSION_KEY = "hoodie.table.version"
_ORDERING_KEY, _OLD_ORDERING_KEY = "hoodie.table.ordering.fields", "hoodie.table.precombine.field"


def version_changes(properties: Mapping[str, str], target: int, layout: str, source: str) -> PropertyChanges:
    """Compute the changes of properties that upgrade or downgrade a table.

    Args:
        properties: properties of a table of version 8, 9 or 10.
        target: the new table version.
        layout: the new storage layout, for version 10.
        source: the file, for messages.

    Raises:
        UnsupportedTable: the target version cannot express the settings of the table.
    """
    table = TableConfig.from_properties(properties, source)
    merging = merge_settings(properties, table.version, source)
    if target not in WRITE_VERSIONS:
        raise UnsupportedTable(
            f"no upgrade or downgrade to table version {target}; use one of {', '.join(map(str, WRITE_VERSIONS))}"
        )
    changes: PropertyChanges = {
        _VERSION_KEY: str(target),
        LAYOUT_VERSION_KEY: "2",
        STORAGE_LAYOUT_KEY: layout if target >= CURRENT_VERSION else None,
        META_FIELDS_KEY: "ALL" if target >= CURRENT_VERSION else None,
        "hoodie.populate.meta.fields": "true",
        **_merging(properties, merging, target),
    }
    fields = ",".join(ordering_fields(properties))
    if fields:
        changes |= {_ORDERING_KEY: fields, _OLD_ORDERING_KEY: None}
    _check_result(table, {**properties, **changes}, target, source)
    return changes


def _check_result(table: TableConfig, changed: Mapping[str, str | None], target: int, source: str) -> None:
    """Check that the changed table can be opened, and differs only in version and layout."""
    try:
        result = TableConfig.from_properties(
            {key: value for key, value in changed.items() if value is not None}, source
        )
    except UnsupportedTable as error:
        raise UnsupportedTable(f"the table cannot be changed to version {target}: {error}") from None
    if replace(table, version=result.version, storage_layout=result.storage_layout) != result:
        raise UnsupportedTable(
            f"{source}: in version {target} the table would have other settings; it has not been changed"
        )


def _merging(properties: Mapping[str, str], merging: MergeSettings, target: int) -> PropertyChanges:
    """Compute the merge keys of the target version: a payload class before version 9, keys from version 9 on."""
    older = properties.get(LEGACY_PAYLOAD_KEY) or properties.get(PAYLOAD_KEY) or payload_class(merging)
    legacy = older if older and not is_plain(older) else None
    changes: PropertyChanges = merge_keys(merging.mode, target, merging.strategy)
    if merging.delete_field is not None:
        changes |= {DELETE_FIELD_KEY: merging.delete_field, DELETE_MARKER_KEY: merging.delete_marker}
    if merging.strategy and target < 9:
        raise UnsupportedTable(
            f"a table with the record merger {merging.strategy} cannot be changed to version {target}, which has none"
        )
    if target >= 9:
        return changes | {PARTIAL_KEY: merging.partial, LEGACY_PAYLOAD_KEY: legacy}
    if merging.partial is not None and legacy is None:
        raise UnsupportedTable(
            f"a table with {PARTIAL_KEY}={merging.partial} cannot be changed to version {target}, which has no payload "
            "class for it"
        )
    return changes | {PARTIAL_KEY: None, LEGACY_PAYLOAD_KEY: None} | (payload_keys(legacy, merging) if legacy else {})
