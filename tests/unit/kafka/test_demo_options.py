"""Options that the demo of the Kafka stream refuses."""

from __future__ import annotations

import runpy
import tempfile
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[3] / "jobs" / "run_kafka_demo.py"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"DEMO_KILL": "compaction", "DEMO_EVENTS": "59"},
            "59 events are too few for a compaction to be due: send at least 60",
        ),
        ({"DEMO_KILL": "compacting"}, "argument --kill: 'compacting' is not one of no, compaction"),
        ({"DEMO_EVENTS": "0"}, "argument --events: '0' is not a number of events, such as 20000"),
    ],
)
def test_a_wrong_option_ends_the_demo_with_status_2_before_anything_is_started(
    options: dict[str, str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in options.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(DEMO))["main"]([])
    out, err = capsys.readouterr()
    assert ended.value.code == 2
    assert out == ""
    assert err.splitlines()[-1].endswith(f"error: {words}")
    assert list(tmp_path.iterdir()) == []
