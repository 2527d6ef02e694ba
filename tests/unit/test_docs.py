"""Headings of the format pages that code and tests cite, links of all pages, and messages that pages quote exist."""

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
LINK = re.compile(r"\]\(([^)\s]+)\)")
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
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
        assert cited or path.parts[len(ROOT.parts)] != "streaming_lsm", f"{page} is cited without a heading"
        for heading in cited:
            assert any(found == heading or found.startswith(f"{heading}: ") for found in known), (
                f"{page} has no {heading}"
            )


def links(text: str) -> list[str]:
    """Link targets of a page outside of code blocks and code spans, without those on other hosts."""
    prose = re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))
    return [target for target in LINK.findall(prose) if "://" not in target]


def anchors(text: str) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them; a repeated heading has a number."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    named = [
        re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", prose, flags=re.M)
    ]
    return {f"{name}-{again}" if (again := named[:at].count(name)) else name for at, name in enumerate(named)}


def broken(page: Path) -> list[str]:
    """Link targets of a page that are no file, or no heading of the page they name."""
    lost = []
    for target in links(page.read_text("utf-8")):
        name, _, anchor = target.partition("#")
        path = (page.parent / name).resolve() if name else page
        if not path.exists() or (anchor and anchor not in anchors(path.read_text("utf-8"))):
            lost.append(target)
    return lost


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_link_leads_to_a_page_and_a_heading(page: Path) -> None:
    assert broken(page) == []


GUARANTEES = ROOT / "docs" / "guarantees.md"


def missing_tests(page: str) -> list[str]:
    """Tests that a page names as ``tests/path.py`` or ``tests/path.py::test_name``, and that do not exist."""
    return [f"{path}::{name}" for path, name in named_tests(page) if not has_test(ROOT / path, name)]


def named_tests(page: str) -> list[tuple[str, str]]:
    """Path and name of each test that a page names; an empty name for a whole file."""
    return re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", page)


def has_test(path: Path, name: str) -> bool:
    """Whether a file of tests exists, and has the test, if one is named."""
    return path.is_file() and f"def {name or 'test_'}" in path.read_text("utf-8")


def test_each_guarantee_names_tests_that_exist() -> None:
    page = GUARANTEES.read_text("utf-8")
    assert missing_tests(page) == []
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| ---")]
    promises = [line for line in rows if line.rstrip(" |").endswith(("`", "each test below"))]
    assert len(promises) >= len(rows) - 7, "five heads, and the rows of storages"
    assert len(named_tests(page)) > 20


def test_a_test_that_a_guarantee_names_in_vain_is_found() -> None:
    assert missing_tests("see `tests/unit/test_docs.py::test_gone`, `tests/unit/gone.py`") == [
        "tests/unit/test_docs.py::test_gone",
        "tests/unit/gone.py::",
    ]


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# What `a` is, and isn't\n```sh\n# comment\n```\n## Twice\n## Twice\n")
    page = tmp_path / "page.md"
    good = ["other.md", "other.md#what-a-is-and-isnt", "other.md#twice-1", "#here", "https://example.org/x"]
    bad = ["missing.md", "other.md#comment", "other.md#twice-2", "#there"]
    page.write_text("# Here\n`[code](no.md)`\n" + "\n".join(f"[text]({target})" for target in good + bad))
    assert broken(page) == bad


def test_the_pages_have_links() -> None:
    assert sum(len(links(page.read_text("utf-8"))) for page in PAGES) > 50


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
