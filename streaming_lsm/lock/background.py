"""Run a function in the background, which waits between its steps and can be stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol


class Background(Protocol):
    """A function that runs beside its caller; injected, so that a test decides when it runs."""

    def start(self) -> None:
        """Start the function."""
        ...

    def wait(self, seconds: float) -> bool:
        """Wait, called by the function; return True as soon as it is to end."""
        ...

    def stop(self) -> None:
        """End the waits, and wait until the function has returned; do nothing if it was not started."""
        ...


NewBackground = Callable[[str, Callable[[Background], None]], Background]
"""Creates a `Background`, which is not started yet, by its name and the function."""


class BackgroundThread:
    """Implement `Background` as a daemon thread."""

    def __init__(self, name: str, run: Callable[[Background], None]) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=run, args=(self,), name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        return self._stop.wait(min(seconds, threading.TIMEOUT_MAX))

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
