"""Recognise damaged keys of ``hoodie.properties``.

A *damaged key* differs from a key of Hudi by one edit: a character inserted, deleted or replaced, or two neighbours
swapped (a Damerau-Levenshtein distance of 1). The edit may also have ended the key early or joined it with its value.
"""

from __future__ import annotations

_SEPARATORS = tuple("=: \t\f")
_PREFIX = "hoodie."


def is_damaged(known: str, key: str, value: str) -> bool:
    """Check whether one edit of a line of the file made the key `known` to `key`.

    The cost does not grow with the lengths of `key` and `value`.

    Args:
        known: a key of Hudi, of four characters or more.
        key: another key, as parsed from the file.
        value: the value of `key`; it has the rest of `known` if the edit made a separator within the key.
    """
    if not value and (key.startswith(known) or known.startswith(key)):
        return len(key) > len(_PREFIX)  # the separator was lost, or a line break made
    longer, half = len(key) - len(known), len(known) // 2
    if longer > 1:
        return False
    # A much shorter key ends at a separator, which is the edit. Else one edit leaves one half intact, except a swap of
    # the two characters in the middle.
    if not (known.startswith(key) if longer < -1 else key.startswith(known[: half - 1]) or key.endswith(known[half:])):
        return False
    return _one_edit_apart(known, f"{key}={value[: len(known) + 1]}")


def _one_edit_apart(known: str, line: str) -> bool:
    """Check whether `line` begins with `known` after one edit within it, followed by a separator."""
    length = len(known)
    at = next((place for place, ours in enumerate(known) if line[place : place + 1] != ours), length)
    inserted = _begins(line[at + 1 :], known[at:])
    if at == length:
        return inserted
    deleted = _begins(line[at:], known[at + 1 :])
    replaced = _begins(line[at + 1 :], known[at + 1 :])
    swapped = line[at : at + 2] == known[at : at + 2][::-1] and _begins(line[at + 2 :], known[at + 2 :])
    return inserted or deleted or replaced or swapped


def _begins(line: str, rest: str) -> bool:
    return line.startswith(rest) and line.startswith(_SEPARATORS, len(rest))
