"""An S3 server in a process of its own (moto), whose requests can be counted, refused, lost and held.

The server does one request at a time: moto itself looks at conditions and acts on them in two steps. The bucket
`CARELESS` ignores conditions. A *rule* is applied to the next requests that fit it.
"""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

BUCKET, CARELESS = "lake", "careless"
_CONTROL = "/_control"
_PATIENCE_S = 60
_LOADING_S = 600
_START = Callable[..., Any]


class S3Server:
    """A running server, as tests see it."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process, self.port = process, port

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which clients find it."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "test-access-key",
            "AWS_SECRET_ACCESS_KEY": "test-secret-key",
            "AWS_REGION": "eu-central-1",
        }

    def requests(self) -> list[str]:
        """Method, path and query of the requests since the last call."""
        return list(self._ask({"op": "requests"}))

    def rule(
        self,
        do: str,
        method: str,
        end: str,
        *,
        times: int = 1,
        later: int = 0,
        status: int = 503,
        code: str = "SlowDown",
    ) -> None:
        """Treat requests otherwise.

        Args:
            do: ``fail``: answer with an error, without the effect. ``drop``: close the connection, without the effect.
                ``lose``: close it after the effect. ``half``: as ``lose``, with half of the answer. ``hold``: keep the
                request until `release`, then do it.
            method: of the requests.
            end: end of their path, followed by ``?`` and the query if there is one.
            times: number of requests.
            later: the rule is for the request of the method that comes so many after the first one that fits.
            status: of the error.
            code: of the error.
        """
        of = {"method": method, "end": end, "times": times, "later": later}
        self._ask({"op": "rule", "do": do, **of, "status": status, "code": code})

    def load(self, folder: str) -> None:
        """Put all files below a local folder into `BUCKET`, under their paths in the folder."""
        self._ask({"op": "load", "folder": folder}, seconds=_LOADING_S)

    def clear_rules(self) -> None:
        """Forget the rules that were not applied."""
        self._ask({"op": "clear"})

    def wait_held(self) -> None:
        """Wait until a request is held."""
        assert self.held(_PATIENCE_S), "no request came that is to be held"

    def held(self, seconds: float) -> str:
        """Wait so long for a request to be held; returns its method, path and query, or nothing."""
        return str(self._ask({"op": "wait", "seconds": seconds}))

    def release(self, *, takes_effect: bool = True) -> None:
        """Do the held request and answer it, or close its connection; return when that is done."""
        self._ask({"op": "release", "takes_effect": takes_effect})

    def raw(self, method: str, path: str, data: bytes | None = None, seconds: float = _PATIENCE_S) -> bytes:
        """Send a request as another program does."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/{path}", data, method=method)
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            return bytes(answer.read())

    def _ask(self, question: dict[str, object], seconds: float = _PATIENCE_S) -> Any:
        return json.loads(self.raw("POST", _CONTROL[1:], json.dumps(question).encode(), seconds))


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Run a server; this process and its children find it by their environment."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.support.s3_server"]
    # Credentials of the developer are no business of the server.
    environment = {**os.environ, "PYTHONPATH": str(root), "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root, env=environment) as process:
        try:
            assert process.stdout is not None
            server = S3Server(process, int(process.stdout.readline()))
            before = dict(os.environ)
            os.environ.update(server.environment)
            try:
                yield server
            finally:
                os.environ.clear()
                os.environ.update(before)
        finally:
            process.kill()


class _Rules:
    """Apply rules to requests, and record the requests."""

    def __init__(self, inner: Callable[..., Iterable[bytes]]) -> None:
        self._inner = inner
        self._one_at_a_time, self._guard = threading.Lock(), threading.Lock()
        self._rules: list[dict[str, Any]] = []
        self._seen: list[str] = []
        self._held, self._released, self._settled = threading.Event(), threading.Event(), threading.Event()
        self._held_request, self._takes_effect = "", True

    def __call__(self, environ: dict[str, Any], start: _START) -> Iterable[bytes]:
        if environ["PATH_INFO"] == _CONTROL:
            return self._control(environ, start)
        path, query = environ["PATH_INFO"], environ["QUERY_STRING"]
        with self._guard:
            request = f"{environ['REQUEST_METHOD']} {path}" + (f"?{query}" if query else "")
            self._seen.append(request)
            rule = self._rule_of(environ["REQUEST_METHOD"], path + (f"?{query}" if query else ""))
        if path.startswith(f"/{CARELESS}/"):
            environ = {key: value for key, value in environ.items() if not key.startswith("HTTP_IF_")}
        do = rule["do"] if rule else ""
        if do == "hold":
            return self._hold(request, environ, start)
        if do == "fail":
            body = f"<Error><Code>{rule['code']}</Code><Message>as the test says</Message></Error>".encode()
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start(
                f"{rule['status']} Refused", [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))]
            )
            return [body]
        if do == "drop":
            return self._hang_up(environ)
        with self._one_at_a_time:
            answer = list(self._inner(environ, (lambda *_: lambda _: None) if do == "lose" else start))
        if do == "half":
            body = b"".join(answer)
            return self._halved(environ, body[: len(body) // 2])
        return self._hang_up(environ) if do == "lose" else answer

    def _hold(self, request: str, environ: dict[str, Any], start: _START) -> Iterable[bytes]:
        # All of it is here before its sender may be killed.
        if length := environ.get("CONTENT_LENGTH"):
            environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(int(length)))
        self._held_request = request
        self._held.set()
        assert self._released.wait(_PATIENCE_S)
        self._released.clear()
        try:
            if not self._takes_effect:
                return self._hang_up(environ)
            with self._one_at_a_time:
                return list(self._inner(environ, start))
        finally:
            self._settled.set()

    def _halved(self, environ: dict[str, Any], body: bytes) -> Iterator[bytes]:
        yield body
        self._hang_up(environ)

    def _hang_up(self, environ: dict[str, Any]) -> Iterable[bytes]:
        with suppress(OSError):  # its sender may be dead
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        raise ConnectionAbortedError

    def _rule_of(self, method: str, path: str) -> Any:
        found = next((rule for rule in self._rules if rule["method"] == method and path.endswith(rule["end"])), None)
        if found is None:
            return None
        if found["later"]:
            found["later"], found["end"] = found["later"] - 1, ""
            return None
        found["times"] -= 1
        if not found["times"]:
            self._rules.remove(found)
        return found

    def _control(self, environ: dict[str, Any], start: _START) -> Iterable[bytes]:
        question = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        answer = json.dumps(getattr(self, f"_do_{question['op']}")(question)).encode()
        start("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(answer)))])
        return [answer]

    def _do_requests(self, _: object) -> list[str]:
        with self._guard:
            seen, self._seen = self._seen, []
        return seen

    def _do_rule(self, rule: dict[str, Any]) -> None:
        with self._guard:
            self._rules.append(rule)

    def _do_load(self, question: dict[str, Any]) -> None:
        from moto.core import DEFAULT_ACCOUNT_ID
        from moto.s3.models import s3_backends

        backend = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
        root = Path(question["folder"])
        for path in root.rglob("*"):
            if path.is_file():
                backend.put_object(BUCKET, path.relative_to(root).as_posix(), path.read_bytes())

    def _do_clear(self, _: object) -> None:
        with self._guard:
            self._rules.clear()

    def _do_wait(self, question: dict[str, Any]) -> str:
        if not self._held.wait(question["seconds"]):
            return ""
        self._held.clear()
        return self._held_request

    def _do_release(self, question: dict[str, Any]) -> None:
        self._takes_effect = question["takes_effect"]
        self._settled.clear()
        self._released.set()
        self._settled.wait(_PATIENCE_S)


def _serve() -> None:
    import logging

    from moto.moto_server.werkzeug_app import create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    server = make_server("127.0.0.1", 0, _Rules(create_backend_app("s3")), threaded=True)
    server.log = lambda *_: None  # type: ignore[method-assign]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for bucket in (BUCKET, CARELESS):
        url = f"http://127.0.0.1:{server.port}/{bucket}"
        urllib.request.urlopen(urllib.request.Request(url, b"", method="PUT"), timeout=_PATIENCE_S).close()
    print(server.port, flush=True)
    signal.pause()


if __name__ == "__main__":
    _serve()
