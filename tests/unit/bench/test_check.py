"""`make bench-check` turns red when a measured step is slower than recorded, and only then."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streaming_lsm.timeline.timeline import Timeline
from tests.bench.check import __main__ as check
from tests.bench.check.baseline import Baseline, this_machine
from tests.bench.check.cases import CASES, Pair
from tests.bench.check.measure import Measured, measure

RECORDED = {"a": 2.0, "b": 0.5}


@pytest.fixture
def baseline(tmp_path: Path) -> Path:
    """A baseline of two cases that this machine recorded."""
    path = tmp_path / "baseline.json"
    Baseline(this_machine(), RECORDED).save(path)
    return path


def feed(monkeypatch: pytest.MonkeyPatch, ratios: dict[str, list[float]]) -> None:
    """Let the command measure these ratios of each case, one after the other."""
    waiting = {name: iter(found) for name, found in ratios.items()}
    pairs = {name: Pair(lambda: None, lambda: None) for name in ratios}
    names = {id(pair): name for name, pair in pairs.items()}

    def measured(pair: Pair, seconds: float) -> Measured:
        return Measured((next(waiting[names[id(pair)]]),), (1.0,))

    def case(pair: Pair) -> Callable[[Path], Pair]:
        return lambda folder: pair

    monkeypatch.setattr(check, "CASES", {name: case(pair) for name, pair in pairs.items()})
    monkeypatch.setattr(check, "measure", measured)


@pytest.mark.parametrize(
    ("ratios", "status", "words"),
    [
        ({"a": [2.0], "b": [0.5]}, 0, "2 of 2 cases are as fast as recorded"),
        ({"a": [2.29], "b": [0.45]}, 0, "2 of 2 cases are as fast as recorded"),
        ({"a": [2.31] * 3, "b": [0.5]}, 1, "SLOWER by 16%"),
        ({"a": [4.0] * 3, "b": [0.6] * 3}, 1, "0 of 2 cases are as fast as recorded"),
        ({"a": [2.5, 2.4, 2.2], "b": [0.5]}, 0, "2 of 2 cases are as fast as recorded"),
        ({"a": [1.5], "b": [0.5]}, 0, "faster by 25%: record it"),
        ({"a": [2.0], "b": [0.5], "new": [1.0] * 3}, 1, "NOT RECORDED"),
        ({"a": [2.0]}, 1, "ratios of cases that do not exist: b; record a new baseline"),
    ],
    ids=[
        "as-recorded",
        "within-the-limit",
        "past-the-limit",
        "both-slower",
        "slow-once",
        "faster",
        "new-case",
        "lost-case",
    ],
)
def test_a_case_that_stays_slower_than_recorded_turns_the_check_red(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    baseline: Path,
    ratios: dict[str, list[float]],
    status: int,
    words: str,
) -> None:
    feed(monkeypatch, ratios)
    assert check.main(["--baseline", str(baseline)]) == status
    assert words in capsys.readouterr().out


def test_the_lowest_ratio_of_three_passes_is_recorded_with_the_machine(
    monkeypatch: pytest.MonkeyPatch, baseline: Path
) -> None:
    feed(monkeypatch, {"a": [3.0, 9.0, 2.5], "b": [0.7, 0.6, 0.5], "new": [1.0, 1.0, 1.0]})
    assert check.main(["--record", "--baseline", str(baseline)]) == 0
    assert Baseline.load(baseline) == Baseline(this_machine(), {"a": 2.5, "b": 0.5, "new": 1.0})


def test_recording_one_case_keeps_the_others(monkeypatch: pytest.MonkeyPatch, baseline: Path) -> None:
    feed(monkeypatch, {"a": [3.0] * 3, "b": []})
    assert check.main(["a", "--record", "--baseline", str(baseline)]) == 0
    assert Baseline.load(baseline).ratios == {"a": 3.0, "b": 0.5}


def test_a_baseline_of_another_machine_is_said_to_be_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], baseline: Path
) -> None:
    Baseline({**this_machine(), "pyarrow": "1.0"}, RECORDED).save(baseline)
    feed(monkeypatch, {"a": [2.0], "b": [0.5]})
    assert check.main(["--baseline", str(baseline)]) == 0
    assert "the baseline is from another pyarrow;" in capsys.readouterr().out


def test_an_unknown_case_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        check.main(["nothing"])
    assert "no case nothing; there are decode JSON rows" in capsys.readouterr().err


def test_the_committed_baseline_has_a_ratio_of_every_case() -> None:
    recorded = json.loads(check.RECORDED.read_text(encoding="utf-8"))
    assert list(recorded["ratios"]) == list(CASES)
    assert set(recorded["machine"]) == set(this_machine())


def test_the_calls_take_turns_and_the_ratio_is_the_median_of_the_turns() -> None:
    calls: list[str] = []
    now = [0.0]

    def call(name: str, seconds: float) -> Callable[[], None]:
        def spend() -> None:
            # Every second turn both take ten times as long, as on a machine that others use.
            now[0] += seconds * (10 if len(calls) // 2 % 2 else 1)
            calls.append(name)

        return spend

    found = measure(Pair(call("ours", 3.0), call("reference", 1.0)), 60.0, clock=lambda: now[0])
    assert found.ratio == pytest.approx(3.0)
    assert set(found.ours) == {3.0, 30.0}
    assert calls[6:10] == ["reference", "ours", "ours", "reference"]


@pytest.mark.parametrize("slower", [1.0, 1.1, 1.2])
def test_a_function_that_takes_a_fifth_longer_than_when_it_was_recorded_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, slower: float
) -> None:
    """The clock counts calls: other tests take their share of the machine's time."""
    now, took, load, case = [0.0], [1.0], Timeline.load, CASES["load a timeline"]

    def counted(call: Callable[..., Any], seconds: Callable[[], float]) -> Callable[..., Any]:
        def tell(*given: object) -> Any:
            now[0] += seconds()
            return call(*given)

        return tell

    def prepared(folder: Path) -> Pair:
        pair = case(folder)
        return Pair(pair.ours, counted(pair.reference, lambda: 1.0))

    monkeypatch.setattr("tests.bench.check.cases.INSTANTS", 10)
    monkeypatch.setitem(CASES, "load a timeline", prepared)
    monkeypatch.setattr(Timeline, "load", counted(load, lambda: took[0]))
    monkeypatch.setattr(check, "measure", lambda pair, seconds: measure(pair, seconds, clock=lambda: now[0]))
    arguments = ["load a timeline", "--baseline", str(tmp_path / "baseline.json"), "--seconds", "0.1"]
    assert check.main([*arguments, "--record"]) == 0
    recorded = Baseline.load(tmp_path / "baseline.json").ratios["load a timeline"]
    Baseline(this_machine(), dict.fromkeys(CASES, recorded)).save(tmp_path / "baseline.json")
    took[0] = slower
    is_red = slower == 1.2
    assert check.main(arguments) == int(is_red)
    assert ("SLOWER by 20%" in capsys.readouterr().out) == is_red
