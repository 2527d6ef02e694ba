"""Run a small schema registry on this machine, with the part of Confluent's HTTP interface that reads and registers."""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import unquote, urlsplit

_TYPE = "application/vnd.schemaregistry.v1+json"
_BY_ID = re.compile(r"/schemas/ids/(\d+)\Z")
_BY_VERSION = re.compile(r"/subjects/([^/]+)/versions/(\d+|latest)\Z")
_VERSIONS = re.compile(r"/subjects/([^/]+)/versions\Z")


@dataclass(frozen=True)
class Registered:
    """Holds a version of a subject.

    Attributes:
        id: the id of its schema; equal schemas have one id.
        schema: the request that registered it: ``schema``, and ``schemaType`` and ``references`` if given.
    """

    id: int
    schema: dict[str, Any]


class RegistryServer:
    """Serves schemas by HTTP until it is stopped, and keeps them in memory.

    As a context manager it starts on entry and stops on exit.
    """

    def __init__(self, user_info: str | None = None, port: int = 0, first_id: int = 1) -> None:
        """Prepare the server.

        Args:
            user_info: ``user:password`` that requests must have; None if they need none.
            port: the port; 0 for any free one.
            first_id: id of the first schema. Clients keep schemas by URL and id, and a port that is free again may be
                that of another server before.
        """
        self._user_info, self._first_id = user_info, first_id
        self._lock = threading.Lock()
        self._ids: dict[str, int] = {}
        self._subjects: dict[str, list[Registered]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def url(self) -> str:
        """URL for clients."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def register(
        self,
        subject: str,
        schema: str,
        references: Sequence[tuple[str, str, int]] = (),
        kind: str | None = None,
    ) -> int:
        """Register a version of a subject, and return the id of its schema.

        Args:
            subject: the subject, as ``topic-value``.
            schema: the schema's text.
            references: name, subject and version of schemas that it refers to.
            kind: AVRO by default.
        """
        body: dict[str, Any] = {"schema": schema}
        if references:
            body["references"] = [dict(zip(("name", "subject", "version"), one, strict=True)) for one in references]
        if kind is not None:
            body["schemaType"] = kind
        return self._register(subject, body)

    def _register(self, subject: str, body: dict[str, Any]) -> int:
        with self._lock:
            known = self._ids.setdefault(json.dumps(body, sort_keys=True), self._first_id + len(self._ids))
            versions = self._subjects.setdefault(subject, [])
            if all(one.id != known for one in versions):
                versions.append(Registered(known, body))
            return known

    def _answer(self, path: str) -> dict[str, Any] | None:
        with self._lock:
            by_id = _BY_ID.match(path)
            if by_id:
                every = (one for versions in self._subjects.values() for one in versions)
                return next((one.schema for one in every if one.id == int(by_id[1])), None)
            by_version = _BY_VERSION.match(path)
            if by_version:
                versions = self._subjects.get(unquote(by_version[1]), [])
                number = len(versions) if by_version[2] == "latest" else int(by_version[2])
                if 0 < number <= len(versions):
                    found = versions[number - 1]
                    return {**found.schema, "id": found.id, "subject": unquote(by_version[1]), "version": number}
        return None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path = urlsplit(self.path).path
                if not self._is_allowed():
                    self._send(401, {"error_code": 401, "message": "Unauthorized"})
                elif path == "/schemas/types":
                    self._send(200, ["AVRO", "JSON", "PROTOBUF"])
                elif (found := server._answer(path)) is not None:
                    self._send(200, found)
                elif path.startswith(("/schemas/ids/", "/subjects/")):
                    code = 40403 if path.startswith("/schemas") else 40402
                    self._send(404, {"error_code": code, "message": "Schema not found"})
                else:
                    self._send(404, {"error_code": 404, "message": "HTTP 404 Not Found"})

            def do_POST(self) -> None:
                subject = _VERSIONS.match(urlsplit(self.path).path)
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                if not self._is_allowed():
                    self._send(401, {"error_code": 401, "message": "Unauthorized"})
                elif subject is None:
                    self._send(404, {"error_code": 404, "message": "HTTP 404 Not Found"})
                else:
                    self._send(200, {"id": server._register(unquote(subject[1]), json.loads(body))})

            def _is_allowed(self) -> bool:
                if server._user_info is None:
                    return True
                secret = base64.b64encode(server._user_info.encode()).decode()
                return self.headers.get("Authorization") == f"Basic {secret}"

            def _send(self, status: int, content: Any) -> None:
                body = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Type", _TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Do not print requests."""

        return Handler

    def __enter__(self) -> RegistryServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
