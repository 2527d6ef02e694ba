"""The configuration page of the documentation, made from the table of options."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from streaming_lsm.config import OPTIONS, Option, environment_name

_INTRODUCTION = """\
# Configuration

This page is made from the table of options in `streaming_lsm/config.py` by `make docs`.

Options come from a properties file, from the environment and from arguments; the later ones win. The environment
variable of a key is `LSM_CONF_` and the key in capitals with `_` for every other character:
`hoodie.table.name` is `{example}`. An unknown key is an error: it names the key that is meant, when one is near, or
says what the option is for, when it is one of Hudi's that are not built here.
"""


def options_page() -> str:
    """The page as Markdown."""
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
