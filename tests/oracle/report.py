"""Violations, collected under codes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Report:
    """A list of violations, each a line ``code: where: what``."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, code: str, where: str, what: object = "") -> None:
        line = f"{code}: {where}: {what}" if what != "" else f"{code}: {where}"
        if line not in self.lines:
            self.lines.append(line)

    def check(self, holds: bool, code: str, where: str, what: object = "") -> bool:
        """Add a violation unless the rule holds; return whether it does."""
        if not holds:
            self.add(code, where, what)
        return holds

    def equal(self, found: object, wanted: object, code: str, where: str) -> bool:
        return self.check(found == wanted, code, where, f"{found!r} instead of {wanted!r}")

    @contextmanager
    def guard(self, code: str, where: str) -> Iterator[None]:
        """Turn an error of the body into a violation."""
        try:
            yield
        except Exception as error:
            self.add(code, where, f"{type(error).__name__}: {error}")
