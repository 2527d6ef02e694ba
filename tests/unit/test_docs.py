"""Pages and headings of the format that code and tests cite exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

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
        assert cited or path.parts[len(ROOT.parts)] != "streaming_lsm", f"{page} is cited without a heading"
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
