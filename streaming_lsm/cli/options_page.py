"""Generate docs/configuration.md from the options in `streaming_lsm/config.py`."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from streaming_lsm.config import OPTIONS, Option, environment_name

_INTRODUCTION = """\
# Configuration

This page is generated from the table of options in `streaming_lsm/config.py` by `make docs`.

Options are read from a properties file, the environment and arguments; later sources override earlier ones. The
environment variable of a key is `LSM_CONF_` and the key in capitals, with `_` for every other character:
`hoodie.table.name` is `{example}`. An unknown key is an error, which names the nearest known key if one is near. For an
option of Hudi that this release does not have, the error names the feature that the option belongs to.
"""


def options_page() -> str:
    """Render the page as Markdown."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _INTRODUCTION.format(example=environment_name("hoodie.table.name"))
    for group, options in groupby(OPTIONS.values(), key=lambda option: option.group):
        yield f"## {group}\n"
        yield "| key | type | default | meaning |"
        yield "| --- | --- | --- | --- |"
        yield from (_row(option) for option in options)
        yield ""


def _row(option: Option[object]) -> str:
    aliases = f" Also read as {', '.join(f'`{alias}`' for alias in option.aliases)}." if option.aliases else ""
    return f"| `{option.key}` | {option.kind} | {_default(option.default)} | {option.doc}{aliases} |"


def _default(value: object) -> str:
    if value is None or value == ():
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
