"""Determine the merge mode of a table of any version from its properties (docs/format/05-merge.md, "Modes").

A *merge mode* defines how records with the same key are merged. Older tables have a *payload class* instead, a Java
class. Payload classes that Hudi has replaced by merge modes are mapped to these; other classes are not supported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streaming_lsm.errors import CorruptFileError, UnsupportedTable

EVENT_TIME_ORDERING = "EVENT_TIME_ORDERING"
COMMIT_TIME_ORDERING = "COMMIT_TIME_ORDERING"
CUSTOM = "CUSTOM"
MERGE_MODES = (EVENT_TIME_ORDERING, COMMIT_TIME_ORDERING)
IGNORE_DEFAULTS = "IGNORE_DEFAULTS"
FILL_UNAVAILABLE = "FILL_UNAVAILABLE"
PARTIAL_MODES = (IGNORE_DEFAULTS, FILL_UNAVAILABLE)

MERGE_MODE_KEY = "hoodie.record.merge.mode"
PAYLOAD_KEY = "hoodie.compaction.payload.class"
LEGACY_PAYLOAD_KEY = "hoodie.table.legacy.payload.class"
PARTIAL_KEY = "hoodie.table.partial.update.mode"
_PROPERTY = "hoodie.record.merge.property."
DELETE_FIELD_KEY = _PROPERTY + "hoodie.payload.delete.field"
DELETE_MARKER_KEY = _PROPERTY + "hoodie.payload.delete.marker"
UNAVAILABLE_KEY = _PROPERTY + "hoodie.write.partial.update.unavailable.value"
UNAVAILABLE = "__debezium_unavailable_value"

# Class of Hudi's package -> merge mode, partial update mode, (delete field, marker).
_PAYLOADS: dict[str, tuple[str, str | None, tuple[str, str] | None]] = {
    "DefaultHoodieRecordPayload": (EVENT_TIME_ORDERING, None, None),
    "EventTimeAvroPayload": (EVENT_TIME_ORDERING, None, None),
    "OverwriteWithLatestAvroPayload": (COMMIT_TIME_ORDERING, None, None),
    "PartialUpdateAvroPayload": (EVENT_TIME_ORDERING, IGNORE_DEFAULTS, None),
    "OverwriteNonDefaultsWithLatestAvroPayload": (COMMIT_TIME_ORDERING, IGNORE_DEFAULTS, None),
    "AWSDmsAvroPayload": (COMMIT_TIME_ORDERING, None, ("Op", "D")),
}
# Classes that are supported from version 9 on only, where other keys specify their behaviour completely.
_ONLY_LEGACY = ("debezium.PostgresDebeziumAvroPayload", "debezium.MySqlDebeziumAvroPayload")

# Strategy and class that tables of version 8 have besides the mode, and that readers of version 8 use.
_STRATEGIES = {
    EVENT_TIME_ORDERING: ("eeb8d96f-b1e4-49fd-bbf8-28ac514178e5", "DefaultHoodieRecordPayload"),
    COMMIT_TIME_ORDERING: ("ce9acb64-bde0-424c-9b91-f6ebba25356d", "OverwriteWithLatestAvroPayload"),
}
STRATEGY_KEY = "hoodie.record.merge.strategy.id"
_OLD_STRATEGY_KEY = "hoodie.compaction.record.merger.strategy"
_BY_PAYLOAD = "00000000-0000-0000-0000-000000000000"
_PACKAGE = "org.apache.hudi.common.model."


def _of_hudi(payload: str) -> str:
    """Return the name of a class in Hudi's package without the package; "" for classes of other packages."""
    return payload.removeprefix(_PACKAGE) if payload.startswith(_PACKAGE) else ""


def merge_keys(mode: str, version: int, strategy: str = "") -> dict[str, str | None]:
    """Return the keys that specify the merge mode in a table version; None for keys that the version does not have.

    See docs/format/09-hudi-1.2.md, "2. hoodie.properties".

    Args:
        mode: one of `MERGE_MODES`, or `CUSTOM`.
        version: 8 or later.
        strategy: the id of the record merger, for `CUSTOM`.
    """
    if mode == CUSTOM:
        return {MERGE_MODE_KEY: mode, STRATEGY_KEY: strategy, PAYLOAD_KEY: None}
    strategy, payload = _STRATEGIES[mode]
    older = version < 9
    return {
        MERGE_MODE_KEY: mode,
        STRATEGY_KEY: strategy if older else None,
        PAYLOAD_KEY: _PACKAGE + payload if older else None,
    }


@dataclass(frozen=True, slots=True)
class MergeSettings:
    """Merge settings of a table.

    Attributes:
        mode: one of `MERGE_MODES`, or `CUSTOM`.
        partial: partial update mode, one of `PARTIAL_MODES`; None: the winning record is taken as a whole.
        unavailable: text that marks a value as not sent, for FILL_UNAVAILABLE.
        delete_field, delete_marker: column, and its value as text, that mark a row as a delete; both or neither.
        strategy: the id of the record merger, in lower case, for `CUSTOM`; else empty.
    """

    mode: str
    partial: str | None = None
    unavailable: str = UNAVAILABLE
    delete_field: str | None = None
    delete_marker: str | None = None
    strategy: str = ""


def payload_keys(payload: str, merging: MergeSettings) -> dict[str, str | None]:
    """Return the keys of a table of version 8 whose payload class does more than a merge mode.

    See docs/format/05-merge.md, "Modes". Delete field and marker are left out if the class implies them.
    """
    found: dict[str, str | None] = {MERGE_MODE_KEY: CUSTOM, STRATEGY_KEY: _BY_PAYLOAD, PAYLOAD_KEY: payload}
    known = _PAYLOADS.get(_of_hudi(payload))
    if known and known[2] == (merging.delete_field, merging.delete_marker):
        found |= {DELETE_FIELD_KEY: None, DELETE_MARKER_KEY: None}
    return found


def payload_class(merging: MergeSettings) -> str | None:
    """Return the payload class with these merge settings in tables before version 9; None if there is none."""
    marking = (merging.delete_field, merging.delete_marker) if merging.delete_field else None
    wanted = {(merging.mode, merging.partial, marking), (merging.mode, merging.partial, None)}
    return next((_PACKAGE + name for name, its in _PAYLOADS.items() if its in wanted), None)


def is_plain(payload: str) -> bool:
    """Check whether a payload class is equivalent to the merge mode beside it."""
    return _PAYLOADS.get(_of_hudi(payload), ("", "", None))[1:] == (None, None)


def merge_settings(properties: Mapping[str, str], version: int, source: str) -> MergeSettings:
    """Determine the merge mode, partial update mode and delete marker of a table.

    Args:
        properties: the content of ``hoodie.properties``.
        version: the table version.
        source: the file, for messages.

    Raises:
        UnsupportedTable: a custom payload class, or a merge mode that is not known.
        CorruptFileError: a required key is missing or contradicts another.
    """
    strategy = custom_strategy(properties)
    known = _known_payload(properties, version, source)
    mode = CUSTOM if strategy else _mode(properties, known[0] if known else None, version, source)
    partial = properties.get(PARTIAL_KEY, "").strip().upper() or (known[1] if known else None)
    if partial is not None and partial not in PARTIAL_MODES:
        raise UnsupportedTable(f"{source}: {PARTIAL_KEY}={partial:.80}: expected one of {', '.join(PARTIAL_MODES)}")
    field, marker = _delete_marking(properties, known[2] if known else None, source)
    return MergeSettings(mode, partial, properties.get(UNAVAILABLE_KEY, UNAVAILABLE), field, marker, strategy)


def _known_payload(
    properties: Mapping[str, str], version: int, source: str
) -> tuple[str, str | None, tuple[str, str] | None] | None:
    """Return the settings of the payload class of a table before version 9; later versions have keys for them."""
    # From version 9 on the first key is set only for a class without equivalent mode, and the other one names the
    # class that a mode has replaced.
    allowed: dict[str, tuple[str, ...]] = {PAYLOAD_KEY: tuple(_PAYLOADS)}
    if version >= 9:
        allowed = {PAYLOAD_KEY: (), LEGACY_PAYLOAD_KEY: (*_PAYLOADS, *_ONLY_LEGACY)}
    for key, classes in allowed.items():
        payload = properties.get(key, "").strip()
        if payload and _of_hudi(payload) not in classes:
            raise UnsupportedTable(
                f"{source}: {key}={payload:.120}: records of this table are merged by a Java class, which this "
                f"package cannot run; set {MERGE_MODE_KEY} in the program that writes the table"
            )
    return _PAYLOADS.get(_of_hudi(properties.get(PAYLOAD_KEY, "").strip()))


def custom_strategy(properties: Mapping[str, str]) -> str:
    """Return the id of a custom merger, which decides with any mode or class; "" for the strategies of Hudi's modes.

    See docs/format/05-merge.md, "Modes".
    """
    known = {strategy for strategy, _ in _STRATEGIES.values()} | {"", _BY_PAYLOAD}
    ids = (properties.get(key, "").strip().lower() for key in (STRATEGY_KEY, _OLD_STRATEGY_KEY))
    return next((found for found in ids if found not in known), "")


def _mode(properties: Mapping[str, str], of_payload: str | None, version: int, source: str) -> str:
    text = properties.get(MERGE_MODE_KEY, "").strip().upper()
    if text == CUSTOM and of_payload is not None:  # version 8, where the class is the merger
        text = of_payload
    if text and text not in MERGE_MODES:
        raise UnsupportedTable(f"{source}: {MERGE_MODE_KEY}={text:.80}: expected one of {', '.join(MERGE_MODES)}")
    mode = text or of_payload
    if mode is None:
        if version >= 8:
            raise CorruptFileError(f"{source}: {MERGE_MODE_KEY} is missing; restore the file from its backup")
        # The mode of Hudi's default class before version 8.
        return COMMIT_TIME_ORDERING
    return mode


def _delete_marking(
    properties: Mapping[str, str], of_payload: tuple[str, str] | None, source: str
) -> tuple[str | None, str | None]:
    column, marker = properties.get(DELETE_FIELD_KEY) or None, properties.get(DELETE_MARKER_KEY)
    if (column is None) != (marker is None):
        key = DELETE_FIELD_KEY if column else DELETE_MARKER_KEY
        raise CorruptFileError(f"{source}: {key}: delete field and marker go together; restore the file")
    return (column, marker) if column or of_payload is None else of_payload
