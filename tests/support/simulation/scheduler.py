"""Run tasks one at a time, in the order of a simulated time that only the scheduler moves.

A *task* is a thread that runs until it waits; then the task with the earliest time goes on. So the order of all steps
follows from the waits alone, never from the machine. A *process* holds tasks, which are stopped and killed together.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support.faulty_storage import Killed

_NEVER = 1 << 62
_PATIENCE_S = 120


class Stuck(Exception):
    """No task can go on, or none comes to its end."""


@dataclass
class Life:
    """Whether a process runs.

    Attributes:
        stopped_until_us: its tasks do not run before this time.
        is_dead: it was killed: each of its tasks raises `Killed` when it would go on.
    """

    stopped_until_us: int = 0
    is_dead: bool = False


@dataclass(eq=False)
class Task:
    """A thread of the simulation.

    Attributes:
        name: for people, and to break ties.
        life: of its process; changed when the task goes on in another one.
        wake_us: the time at which it goes on.
        waits_for: it goes on when this task has ended.
    """

    name: str
    run: Callable[[], None]
    life: Life
    wake_us: int
    waits_for: Task | None = None
    has_ended: bool = False
    gate: threading.Lock = field(default_factory=threading.Lock)

    def ready_us(self) -> int:
        """The earliest time at which it can go on."""
        if self.life.is_dead:
            return 0
        ready_us = max(self.wake_us, self.life.stopped_until_us)
        return ready_us if self.waits_for is None or self.waits_for.has_ended else _NEVER


class Scheduler:
    """Runs tasks.

    Attributes:
        now_us: simulated microseconds since the beginning.
        current: the task that runs.
        error: the first exception that left a task.
    """

    def __init__(self, most_steps: int) -> None:
        self.now_us = 0
        self.steps = 0
        self.error: BaseException | None = None
        self._most_steps = most_steps
        self._tasks: list[Task] = []
        self._finished = threading.Event()
        self._gives_up = False
        self.current = Task("nobody", lambda: None, Life(), 0)

    def spawn(self, name: str, run: Callable[[], None], life: Life, delay_us: int = 0) -> Task:
        """Add a task; it begins when the others wait."""
        task = Task(name, run, life, self.now_us + delay_us)
        task.gate.acquire()
        self._tasks.append(task)
        threading.Thread(target=self._main, args=(task,), name=name, daemon=True).start()
        return task

    def run(self) -> None:
        """Run all tasks to their ends, and return then; tasks may be spawned again afterwards.

        Raises:
            Stuck: a task has not ended after all the steps that it may take.
        """
        if self._tasks:
            self._finished.clear()
            self._hand_over()
            steps = -1
            while not self._finished.wait(_PATIENCE_S):
                if self.steps == steps:
                    raise Stuck(f"{self.current.name} has not come to a step for {_PATIENCE_S} s")
                steps = self.steps
        if self.error is not None:
            raise self.error

    def pause(self, us: int) -> None:
        """Let the others run for a while; called by a task.

        Raises:
            Killed: the task's process is dead.
        """
        task = self.current
        self._refuse_dead(task)
        self.steps += 1
        if self.steps > self._most_steps:
            self.give_up(Stuck(f"not at its end after {self._most_steps} steps"))
        task.wake_us = self.now_us + us
        self._yield(task)

    def join(self, other: Task) -> None:
        """Wait until another task has ended; called by a task. Raises `Killed` as `pause`."""
        task = self.current
        self._refuse_dead(task)
        if not other.has_ended:
            task.wake_us, task.waits_for = self.now_us, other
            self._yield(task)
            task.waits_for = None

    def wake(self, task: Task) -> None:
        """End the pause of a task."""
        task.wake_us = min(task.wake_us, self.now_us)

    def _yield(self, task: Task) -> None:
        following = self._next()
        if following is not task:
            self._go_on(following)
            task.gate.acquire()
        self.current = task
        self._refuse_dead(task)

    def _next(self) -> Task:
        following = min(self._tasks, key=Task.ready_us)  # of equals the one that was spawned first
        if following.ready_us() == _NEVER:
            self.give_up(Stuck("each task waits for another one"))
        self.now_us = max(self.now_us, following.ready_us())
        return following

    def _refuse_dead(self, task: Task) -> None:
        if self._gives_up or task.life.is_dead:
            raise Killed(task.name)

    def give_up(self, error: BaseException) -> None:
        """End all tasks: each of them is killed when it would go on; `run` raises the first error."""
        self.error = self.error or error
        self._gives_up = True
        for task in self._tasks:
            task.wake_us, task.waits_for, task.life = 0, None, Life()

    def _go_on(self, task: Task) -> None:
        self.current = task
        task.gate.release()

    def _hand_over(self) -> None:
        if self._tasks:
            self._go_on(self._next())
        else:
            self._finished.set()

    def _main(self, task: Task) -> None:
        task.gate.acquire()
        try:
            if not self._gives_up and not task.life.is_dead:
                task.run()
        except Killed:
            pass
        except BaseException as error:
            self.give_up(error)
        task.has_ended = True
        self._tasks.remove(task)
        self._hand_over()
