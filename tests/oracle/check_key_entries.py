"""Key entries of logs: each tells of every key that its file has.

See docs/format/03-native-logs.md, "Key entries".
"""

from __future__ import annotations

import json
import os
import zlib
from typing import Any

from .hashing import decode_bloom
from .report import Report
from .table import DataFile

BLOOM = "org.apache.hudi.bloomfilter"
BLOOM_TYPE = "hoodie_bloom_filter_type_code"
LOW, HIGH = "hoodie_min_record_key", "hoodie_max_record_key"
CHECK, ACCUMULATED = "lsm.log.keys", "lsm.log.keys.accumulated"
SAMPLE, STRANGERS = 500, 40


class KeyEntryChecks:
    """Checks the own entry of each log, and, when all logs are known, what others tell of it."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.known: dict[tuple[str, int], tuple[DataFile, list[str]]] = {}
        self.accumulated: list[tuple[DataFile, str]] = []

    def add(self, file: DataFile, footer: dict[str, str], keys: list[str]) -> None:
        """Check the own entry of a log."""
        size, name = os.path.getsize(file.path), os.path.basename(file.path)
        self.known[name, size] = file, keys
        if ACCUMULATED in footer:
            self.accumulated.append((file, footer[ACCUMULATED]))
        if CHECK not in footer:
            return
        code, where = "keys.own", file.relative
        values = [footer.get(entry, "") for entry in (LOW, HIGH, BLOOM_TYPE, BLOOM)]
        said = {"keys": len(keys), "crc32": zlib.crc32("\n".join(values).encode())}
        self.report.equal(json.loads(footer[CHECK]), said, code, where)
        self._check_entry(code, where, keys, (footer.get(LOW), footer.get(HIGH)), footer.get(BLOOM))

    def finish(self) -> None:
        """Check the accumulated entries; files that they cover may be gone."""
        for file, text in self.accumulated:
            with self.report.guard("keys.accumulated", file.relative):
                self._check_accumulated(file, text)

    def _check_accumulated(self, file: DataFile, text: str) -> None:
        code, where = "keys.accumulated", file.relative
        self.report.equal(text[:8], f"{zlib.crc32(text[8:].encode()):08x}", code, where)
        entry = json.loads(text[8:])
        self.report.equal(entry["version"], 1, code, where)
        names = [log["name"] for log in entry["logs"]]
        self.report.equal(len(names), len(set(names)), code, where)
        self.report.check(os.path.basename(file.path) not in names, code, where, "covers itself")
        for log in entry["logs"]:
            self._check_covered(code, where, file, log)

    def _check_covered(self, code: str, where: str, file: DataFile, log: dict[str, Any]) -> None:
        found = self.known.get((log["name"], log["size"]))
        if found is None or found[0].group != file.group:
            return
        keys = found[1]
        self.report.equal(log["keys"], len(keys), code, where)
        self._check_entry(code, f"{where}, {log['name']}", keys, (log.get("min"), log.get("max")), log.get("bloom"))

    def _check_entry(
        self, code: str, where: str, keys: list[str], span: tuple[str | None, str | None], bloom: str | None
    ) -> None:
        ordered = sorted(keys, key=lambda key: key.encode())
        self.report.equal(span, (ordered[0], ordered[-1]) if ordered else (None, None), code, where)
        if bloom is None:
            return
        decoded = decode_bloom(bloom, dynamic=False)
        missed = [key for key in keys[:: max(1, len(keys) // SAMPLE)] if not decoded.might_contain(key)]
        self.report.check(not missed, code, where, f"misses {missed[:3]}")
        strangers = sum(decoded.might_contain(f"\x7fno such key {number}") for number in range(STRANGERS))
        self.report.check(strangers < STRANGERS // 4, code, where, f"holds {strangers} of {STRANGERS} strangers")
