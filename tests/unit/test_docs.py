"""Pages and headings of the format that code and tests cite exist, and so do the messages that pages quote."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from streaming_lsm import errors

ROOT = Path(__file__).resolve().parents[2]
CITATION = re.compile(r'docs/format/([\w.-]+\.md)((?:, "[^"]+")*)')
SOURCES = sorted(path for folder in ("streaming_lsm", "tests", "jobs") for path in (ROOT / folder).rglob("*.py"))
CITING = [path for path in SOURCES if path != Path(__file__).resolve() and CITATION.search(path.read_text("utf-8"))]


def citations(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Page and headings of each citation; line ends, and the marks of comments behind them, count as one space."""
    text = re.sub(r"\n\s*(?:# )?", " ", path.read_text("utf-8"))
    for page, headings in CITATION.findall(text):
        yield page, re.findall(r'"([^"]+)"', headings)


def headings(page: str) -> list[str]:
    """Headings of a page, without their marks."""
    text = (ROOT / "docs" / "format" / page).read_text("utf-8")
    return [line.lstrip("#").strip() for line in text.splitlines() if re.match(r"#+ ", line)]


@pytest.mark.parametrize("path", CITING, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_cited_heading_exists(path: Path) -> None:
    for page, cited in citations(path):
        known = headings(page)
        for heading in cited:
            assert any(found == heading or found.startswith(f"{heading}: ") for found in known), (
                f"{page} has no {heading}"
            )


def test_the_format_is_cited() -> None:
    assert sum(len(list(citations(path))) for path in CITING) > 120


def test_a_missing_heading_is_found(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text('"""Roll back (docs/format/02-timeline.md, "Rollback",\n    "No such heading")."""\n')
    assert list(citations(source)) == [("02-timeline.md", ["Rollback", "No such heading"])]
    assert "Rollback" in headings("02-timeline.md")
    assert "No such heading" not in headings("02-timeline.md")


# --- messages quoted in docs/troubleshooting.md ---------------------------------------------------------------------

CODE = [path for path in SOURCES if ROOT / "tests" not in path.parents]
ANY = "\0"
"""Stands for a value in a message of the code."""


def quotes() -> Iterator[str]:
    """Messages in the first column of the tables; those of other programs, such as `(Spark)`, are left out."""
    for line in (ROOT / "docs" / "troubleshooting.md").read_text("utf-8").splitlines():
        cell = re.split(r"(?<!\\)\|", line)[1].strip() if line.startswith("| ") else ""
        if not cell.endswith("(Spark)"):
            yield from (quote for quote in re.findall(r"`([^`]+)`", cell) if quote not in ERRORS)


ERRORS = {name for name in dir(errors) if name[0].isupper()}


def constants(source: str) -> Iterator[tuple[str, str]]:
    """Texts and numbers assigned at the top of a module, by name."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            yield from ((name.id, str(node.value.value)) for name in node.targets if isinstance(name, ast.Name))


FOUND = {found for path in CODE for found in constants(path.read_text("utf-8"))}
TIMES = Counter(name for name, _ in FOUND)
CONSTANTS = {name: value for name, value in FOUND if TIMES[name] == 1}
"""Those that have one value in all modules."""


def messages(source: str) -> Iterator[str]:
    """Text of each string of a module but docstrings, with `ANY` for the values in it, except constants of modules."""
    nodes = list(ast.walk(ast.parse(source)))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            yield "".join(_part(part) for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield re.sub(r"%[a-z.\d]*[sd]", ANY, node.value)


def _part(part: ast.expr) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    named = part.value if isinstance(part, ast.FormattedValue) else None
    return CONSTANTS.get(named.id, ANY) if isinstance(named, ast.Name) else ANY


def is_message(quote: str, texts: list[str]) -> bool:
    """Whether the constant parts of `quote` follow each other in one of `texts`, with values between them.

    Values are ``…``, ``<name>`` and ``'x'``.
    """
    parts = [part for part in re.split(r"\s*(?:…|<[^>]+>|'\w')\s*", quote) if part]
    pattern = re.compile(".*".join(map(re.escape, parts)), re.DOTALL)
    return any(pattern.search(text) for text in texts)


TEXTS = [text for path in CODE for text in messages(path.read_text("utf-8"))]


@pytest.mark.parametrize("quote", list(quotes()))
def test_each_quoted_message_is_in_the_code(quote: str) -> None:
    assert is_message(quote, TEXTS)


def test_a_message_that_has_changed_is_found() -> None:
    texts = list(messages("raise E(f'the file {path} is gone, '\n 'though {x!r}')\nlog('forgetting %s of %d', a, b)"))
    assert is_message("the file … is gone, though", texts)
    assert is_message("forgetting <name> of …", texts)
    assert not is_message("the file is gone", texts)
    assert not is_message("the file … was gone", texts)
    assert not is_message("is gone … the file", texts)
    assert len(list(quotes())) > 60
