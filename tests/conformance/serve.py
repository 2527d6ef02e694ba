"""The judge's side of the pipe: one JSON request a line in, one JSON answer a line out.

A request names a handler in `do`; its other keys are the handler's arguments. The answer is
``{"ok": …, "seconds": …}`` or ``{"error": {"class": …, "message": …}}``; an error ends nothing.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

MESSAGE_CHARACTERS = 2000
Handler = Callable[..., Any]
Describe = Callable[[BaseException], tuple[str, str]]


def serve(handlers: Mapping[str, Handler], describe: Describe, answers: int) -> None:
    """Answer requests until one says `stop` or the other side is gone.

    Args:
        handlers: by the request's `do`.
        describe: class and message of an error.
        answers: descriptor that `claim_stdout` gave.
    """
    _send(answers, {"ok": "ready"})
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "stop":
            break
        print(f"== {line.strip()[:1000]}", file=sys.stderr, flush=True)
        _send(answers, _answer(handlers, describe, request))


def claim_stdout() -> int:
    """A descriptor for answers only: whatever else writes to standard output from now on goes to the log.

    A JVM inherits what it prints to, so this comes before one is started.
    """
    answers = os.dup(1)
    os.dup2(2, 1)
    return answers


def _send(answers: int, answer: Mapping[str, object]) -> None:
    line = (json.dumps(answer) + "\n").encode()
    while line:
        line = line[os.write(answers, line) :]


def _answer(handlers: Mapping[str, Handler], describe: Describe, request: dict[str, Any]) -> dict[str, object]:
    begun = time.monotonic()
    try:
        done = handlers[request.pop("do")](**request)
    # A panic in Rust is no Exception, only a BaseException.
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        traceback.print_exc()
        name, message = describe(error)
        return {"error": {"class": name, "message": message[:MESSAGE_CHARACTERS]}}
    return {"ok": done, "seconds": round(time.monotonic() - begun, 3)}
