"""Measured pairs are kept and not measured again; a failing system is told with its error, never as a number."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.bench.peers import __main__ as driver
from tests.bench.peers.figures import Figure, write_figures
from tests.bench.peers.measures import percentile
from tests.bench.peers.page import render
from tests.bench.peers.plot import bars
from tests.bench.peers.results import Pair, Results, wrong_digests
from tests.bench.peers.sizes import FULL, TINY, Sizes
from tests.bench.peers.systems import READS, SYSTEMS, System
from tests.conformance.worker import Refused

MACHINE = {"processor": "any", "cores": "2", "memory": "8 GiB", "system": "Linux", "python": "3.11"}
DIGEST = "3:abc"


def written(seconds: float = 2.0, **more: Any) -> dict[str, Any]:
    """What a run of writes measured."""
    return {
        "rows": 1_000,
        "batch_seconds": [seconds, seconds],
        "processor_seconds": seconds,
        "bytes": 5_000_000,
        "files": 3,
        "session_seconds": 4.0,
        "first_batch_seconds": 6.0,
        "digests": {"spark": [DIGEST]},
        "versions": {"spark": "4"},
        "load": 1.0,
        "machine": MACHINE,
        **more,
    }


def read(seconds: float, **more: Any) -> dict[str, Any]:
    """What a run of reads measured."""
    cell = {"first_seconds": 9.0, "seconds": [seconds, seconds]}
    snapshots = {state: {"spark": cell, "arrow": {"none": "no reader"}} for state in ("0", "5", "20", "compacted")}
    return written(compaction={"seconds": seconds, "bytes": 1, "files": 1}, snapshots=snapshots, **more)


def pair(letter: str, system: str, *runs: dict[str, Any], error: str = "") -> Pair:
    """A pair of one run."""
    return Pair(letter, system, TINY.as_json(), list(runs), error)


def page(*pairs: Pair) -> str:
    """The page of some pairs; the others are not measured."""
    every = {
        (letter, each.name): pair(letter, each.name)
        for each in SYSTEMS
        for letter in "SKBER"
        if letter in each.workloads
    }
    return render({**every, **{(each.workload, each.system): each for each in pairs}}, TINY, "tiny", "plot.png")


def row(text: str, heading: str, title: str) -> str:
    """The line of a system in the table below a heading."""
    found = re.search(rf"^## {heading}.*?(^\| {re.escape(title)}.*?$)", text, re.MULTILINE | re.DOTALL)
    assert found
    return found[1]


def test_a_finished_pair_is_loaded_and_one_of_other_sizes_is_not(tmp_path: Path) -> None:
    results = Results(tmp_path, TINY)
    results.save(pair("S", "hudi", written()))
    assert results.load("S", "hudi").finished
    assert results.load("S", "hudi").runs == [written()]
    assert not results.load("S", "delta").finished
    assert not Results(tmp_path, FULL).load("S", "hudi").runs


def test_a_pair_that_failed_is_not_finished() -> None:
    assert pair("S", "hudi", written()).finished
    assert not pair("S", "hudi", written(), error="it broke").finished
    assert not Pair("S", "hudi", FULL.as_json(), [written()] * 2).finished


def test_systems_take_turns_and_who_begins_alternates() -> None:
    pairs = [pair("S", "lsm"), pair("S", "hudi"), pair("K", "lsm")]
    seen = []
    for letter, run, each in driver.turns(pairs, 2):
        seen.append(f"{letter}{run} {each.system}")
        each.runs.append({})
    assert seen == ["S0 lsm", "S0 hudi", "S1 hudi", "S1 lsm", "K0 lsm", "K1 lsm"]


def test_a_pair_goes_on_with_the_run_that_is_missing_and_stops_when_one_fails() -> None:
    begun, fails = pair("S", "lsm", written()), pair("S", "hudi")
    seen = []
    for _, run, each in driver.turns([begun, fails], 3):
        seen.append((each.system, run))
        each.runs.append({})
        if each is fails:
            each.error = "it broke"
    assert seen == [("hudi", 0), ("lsm", 1), ("lsm", 2)]


def test_rows_that_differ_by_any_reader_are_told() -> None:
    assert wrong_digests({"digests": {"spark": [DIGEST, DIGEST], "arrow": [DIGEST]}}, DIGEST) == ""
    assert "arrow: 2:def" in wrong_digests({"digests": {"spark": [DIGEST], "arrow": [DIGEST, "2:def"]}}, DIGEST)
    assert wrong_digests({"digests": {"spark": [DIGEST], "arrow": ["Panic: no"]}}, DIGEST) == ""


def test_a_final_state_that_no_reader_gave_is_told() -> None:
    assert wrong_digests({}, DIGEST) == wrong_digests({"digests": {"arrow": ["Panic: no"]}}, DIGEST) != ""


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[int, list[str]]]:
    """Calls the driver with runs that are not real: what `outcome` gives or raises is what the systems do."""

    def call(outcome: Callable[[str], dict[str, Any]], *arguments: str) -> tuple[int, list[str]]:
        asked = []

        def run(system: System, *_: Any) -> dict[str, Any]:
            asked.append(system.name)
            return outcome(system.name)

        monkeypatch.setattr(driver, "_run", run)
        monkeypatch.setattr(driver, "prepare", lambda *_: None)
        monkeypatch.setattr(driver, "write_files", lambda *_: {"S": DIGEST})
        monkeypatch.setattr(driver.signal, "signal", lambda *_: None)
        status = driver.main(["--folder", str(tmp_path), "--form", "tiny", "--workloads", "S", *arguments])
        return status, asked

    return call


def test_what_is_measured_is_not_measured_again_unless_asked(
    measuring: Callable[..., tuple[int, list[str]]],
) -> None:
    assert measuring(lambda name: written(), "lsm", "hudi") == (0, ["lsm", "hudi"])
    assert measuring(lambda name: written(), "lsm", "hudi", "delta") == (0, ["delta"])
    assert measuring(lambda name: written(), "lsm", "--again") == (0, ["lsm"])


def test_a_system_that_fails_does_not_stop_the_others_and_is_tried_again(
    measuring: Callable[..., tuple[int, list[str]]], tmp_path: Path
) -> None:
    def fails(name: str) -> dict[str, Any]:
        if name == "hudi":
            raise Refused("HoodieException", "it broke", tmp_path / "log")
        return written()

    assert measuring(fails, "lsm", "hudi", "delta") == (1, ["lsm", "hudi", "delta"])
    assert "HoodieException: it broke" in Results(tmp_path / "tiny", TINY).load("S", "hudi").error
    assert measuring(lambda name: written(), "lsm", "hudi", "delta") == (0, ["hudi"])


def test_the_rows_of_a_plain_append_are_not_compared(measuring: Callable[..., tuple[int, list[str]]]) -> None:
    assert measuring(lambda name: written(digests={}), "append") == (0, ["append"])
    assert measuring(lambda name: written(digests={}), "lsm") == (1, ["lsm"])


def test_a_system_with_other_rows_in_the_end_fails(
    measuring: Callable[..., tuple[int, list[str]]], tmp_path: Path
) -> None:
    assert measuring(lambda name: written(digests={"spark": ["2:def"]}), "delta")[0] == 1
    assert "final state differs" in Results(tmp_path / "tiny", TINY).load("S", "delta").error


def test_percentiles_are_of_the_values() -> None:
    assert [percentile([3.0, 1.0, 2.0, 4.0], share) for share in (0.5, 0.99, 0.0)] == [2.0, 4.0, 1.0]
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_figures_are_medians_of_runs_with_their_spread() -> None:
    found = write_figures(pair("S", "lsm", written(1.0), written(2.0), written(5.0)))
    assert found.rate == Figure(250.0, 100.0, 500.0)
    assert found.processor.median == 2_000.0
    assert (found.batch_50, found.batch_99, found.age_50) == (2.0, 5.0, None)


def test_the_page_shows_a_failed_pair_with_its_error_and_without_numbers() -> None:
    text = page(pair("S", "lsm", written()), pair("S", "hudi", written(), error="HoodieException: it broke\nat line 1"))
    assert row(text, "S:", "Hudi") == "| Hudi 1.2.0, Spark 3.5 | **failed** |" + "  |" * 8
    assert "- S, Hudi 1.2.0, Spark 3.5: HoodieException: it broke" in text
    assert "equal" in row(text, "S:", "streaming_lsm, LsmSink")


def test_the_page_names_what_is_not_measured() -> None:
    text = page()
    assert "not measured" in row(text, "K:", "Delta")
    assert "Nothing is measured yet." in text


def test_the_page_says_where_a_peer_is_better_and_which_target_is_missed() -> None:
    text = page(
        pair("S", "lsm", written(2.0)), pair("S", "delta", written(1.0)), pair(READS, "lsm", read(2.0)),
        pair(READS, "paimon", read(1.0)),
    )  # fmt: skip
    better = text.partition("## Where a peer is better")[2].partition("## Targets")[0]
    assert "- S, rate: Delta 4.1.0, MERGE, Spark 4.1, 2.00 x ours" in better
    assert "- R, snapshot by Spark, 20 logs: Paimon 0.9.0, write-only, Spark 3.5, 0.50 x ours" in better
    assert "bytes" not in better
    assert re.search(r"rate: streaming_lsm.* / Delta.* \| 0.50 \| ≥ 2.5 \| \*\*missed\*\*", text)


def test_the_page_says_when_no_peer_is_better() -> None:
    assert "In none of the figures above." in page(pair("S", "lsm", written(1.0)), pair("S", "delta", written(2.0)))


def test_a_reader_that_fails_is_told_and_the_other_cells_stay() -> None:
    run = read(1.5, digests={"spark": [DIGEST], "arrow": ["Panic: unknown log"]})
    run["snapshots"]["20"]["arrow"] = {"error": "Panic: unknown log"}
    text = page(pair(READS, "hudi", run))
    assert "| 1.50 / 1.50 / 1.50 / 1.50 | - / - / failed / - |" in row(text, "R:", "Hudi")
    assert "- Hudi 1.2.0, Spark 3.5: Arrow (20 logs): failed: Panic: unknown log" in text


def test_the_plot_has_no_bar_for_a_pair_that_failed() -> None:
    panels = bars({("S", "lsm"): pair("S", "lsm", written()), ("S", "hudi"): pair("S", "hudi", written(), error="no")})
    assert [name for name, _ in panels["S: k rows/s"]] == ["lsm"]


def test_an_unknown_system_or_workload_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["icebergs"], ["--workloads", "SX"]):
        with pytest.raises(SystemExit):
            driver.main(arguments)
        assert "there is no '" in capsys.readouterr().err


def test_all_forms_do_the_same_with_other_counts() -> None:
    assert all(value > 0 for value in Sizes().as_json().values())
    assert FULL.runs == 3
    assert (FULL.batches, FULL.rows, FULL.keys, FULL.seconds, FULL.second_rows) == (8, 250_000, 700_000, 60, 1_000)
