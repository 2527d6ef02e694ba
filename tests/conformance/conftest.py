"""The judges as session fixtures, and the table of what they said."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.conformance.environment import ROOT, Environment, prepare
from tests.conformance.judge import Hudi, HudiRs
from tests.conformance.results import Record, Results, as_text

LOGS = ROOT / "build" / "conformance"
_RESULTS = pytest.StashKey[Results]()


@pytest.fixture(scope="session")
def judge_environment() -> Environment:
    return prepare()


@pytest.fixture(scope="session")
def hudi(judge_environment: Environment) -> Iterator[Hudi]:
    with Hudi(judge_environment, _new_log("hudi.log")) as judge:
        yield judge


@pytest.fixture(scope="session")
def hudi_rs(judge_environment: Environment) -> Iterator[HudiRs]:
    with HudiRs(judge_environment, _new_log("hudi_rs.log")) as judge:
        yield judge


def _new_log(name: str) -> Path:
    log = LOGS / name
    log.unlink(missing_ok=True)
    return log


@pytest.fixture
def record(request: pytest.FixtureRequest) -> Record:
    """Begins a line of the table: ``record(case, direction, query)``; the next call or the test's end ends it."""
    return request.config.stash[_RESULTS].record


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_RESULTS] = Results()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        item.config.stash[_RESULTS].close("not run" if report.skipped else report.outcome)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = config.stash[_RESULTS].lines
    if lines:
        terminalreporter.section("what was judged")
        for text in as_text(lines):
            terminalreporter.write_line(text)
