"""Looks at a table, once or until a signal comes: what is printed, what is tried again, what ends the job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from streaming_lsm.errors import ConfigError, CorruptFileError, LockTimeout, TableNotFound
from streaming_lsm.service_job.loop import ServiceLoop, Worker, pause_s
from streaming_lsm.service_job.messages import Event, message
from streaming_lsm.service_job.stopping import Stop
from streaming_lsm.services.cleaning.worker import Cleaned
from streaming_lsm.services.context import EngineStopped
from streaming_lsm.services.plan_worker import Failed, PutBack
from streaming_lsm.timeline.instant import Instant, State

PLAN = Instant("20261123080148333", "compaction", State.REQUESTED)
DONE = Cleaned(Instant("1", "clean", State.COMPLETED, "2"), 3)
BROKEN = Failed(PLAN, CorruptFileError("the plan is damaged: restore it"))


class NoWait(Stop):
    """Waits no time, and comes to its end after some waits."""

    def __init__(self, waits: int) -> None:
        super().__init__()
        self.waited: list[float] = []
        self._waits = waits

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)
        if len(self.waited) >= self._waits:
            self.request()


class Scripted:
    """A worker whose looks are given: events, or an error."""

    idle = "nothing to do"

    def __init__(self, *looks: Sequence[Event] | Exception) -> None:
        self._looks = list(looks)

    def look(self, is_stopping: Callable[[], bool]) -> Iterator[Event]:
        look = self._looks.pop(0) if self._looks else []
        if isinstance(look, Exception):
            raise look
        yield from look


def loop(stop: Stop, *workers: Worker) -> ServiceLoop:
    opened = iter(workers)
    return ServiceLoop("compact", lambda: next(opened), stop)


def test_one_look_prints_what_it_did_or_that_there_was_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert loop(Stop(), Scripted([DONE])).once()
    assert capsys.readouterr() == ("1_2.clean: 3 files deleted\n", "")
    assert loop(Stop(), Scripted()).once()
    assert capsys.readouterr() == ("nothing to do\n", "")
    assert not loop(Stop(), Scripted([BROKEN, DONE])).once()
    said, complained = capsys.readouterr()
    assert said == "1_2.clean: 3 files deleted\n"
    assert complained == (
        "compact: 20261123080148333.compaction.requested failed, it stays planned: the plan is damaged: restore it\n"
    )


def test_a_watch_prints_nothing_while_there_is_nothing_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    stop = NoWait(3)
    loop(stop, Scripted([], [DONE], [])).watch(10, "file:///lake/orders")
    assert stop.waited == [10, 10, 10]
    said = "watching file:///lake/orders, a look every 10 s\n1_2.clean: 3 files deleted\n"
    assert capsys.readouterr() == (said, "")


def test_a_look_that_fails_is_tried_again_after_ever_longer_pauses(capsys: pytest.CaptureFixture[str]) -> None:
    stop = NoWait(5)
    busy = LockTimeout("the table is locked")
    loop(stop, Scripted(busy, OSError(5, "I/O error", "timeline"), [Failed(None, busy)], [DONE], [])).watch(10, "t")
    assert stop.waited == [20, 40, 80, 10, 10]
    complained = capsys.readouterr().err.splitlines()
    assert complained[0] == "compact: the table is locked; tried again"
    assert "I/O error" in complained[1]
    assert complained[2] == "compact: no compaction was scheduled: the table is locked"


def test_a_plan_that_fails_makes_no_other_look_wait(capsys: pytest.CaptureFixture[str]) -> None:
    stop = NoWait(1)
    loop(stop, Scripted([BROKEN])).watch(10, "t")
    assert stop.waited == [10]


def test_pauses_are_at_most_five_minutes_or_the_interval() -> None:
    assert [pause_s(10, failures) for failures in (0, 1, 5, 1000)] == [10, 20, 300, 300]
    assert pause_s(900, 7) == 900


def test_a_table_whose_settings_were_changed_is_opened_again(capsys: pytest.CaptureFixture[str]) -> None:
    changed = ConfigError("hoodie.properties was changed since the table was opened; open it again")
    loop(NoWait(2), Scripted(changed), Scripted([DONE])).watch(10, "t")
    said, complained = capsys.readouterr()
    assert "3 files deleted" in said
    assert "was changed" in complained


@pytest.mark.parametrize("error", [TableNotFound("gone"), EngineStopped("Spark's Java process has ended")])
def test_a_table_that_is_gone_and_an_engine_that_is_end_the_watch(error: Exception) -> None:
    with pytest.raises(type(error)):
        loop(NoWait(9), Scripted(error)).watch(10, "t")


def test_an_engine_that_stops_on_a_signal_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    stop = Stop()

    class Interrupted:
        idle = ""

        def look(self, is_stopping: Callable[[], bool]) -> Iterator[Event]:
            stop.request()
            assert is_stopping()
            yield PutBack(PLAN)
            raise EngineStopped("stopped by SIGTERM")

    assert loop(stop, Interrupted()).once()
    stop = Stop()
    loop(stop, Interrupted()).watch(10, "t")
    put_back = "20261123080148333.compaction.requested was put back: the next compaction of the table runs it\n"
    assert capsys.readouterr().out == f"{put_back}watching t, a look every 10 s\n{put_back}"


def test_javas_stack_is_left_out() -> None:
    error = RuntimeError("Job aborted: no space left\n\tat org.apache.spark.Task\n\tat java.lang.Thread")
    assert message(Failed(PLAN, error)).endswith("it stays planned: Job aborted: no space left")
