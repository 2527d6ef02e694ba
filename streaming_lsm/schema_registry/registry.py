"""Fetch schemas from a schema registry by its HTTP interface, that of Confluent's."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlsplit, urlunsplit
from urllib.request import Request, urlopen

from streaming_lsm.bounded_json import parse_json
from streaming_lsm.errors import ConfigError, RegistryError, SchemaError
from streaming_lsm.schema_registry.sources import WriterSchema

TIMEOUT_SECONDS = 15.0
"""Time within which a schema with all of its references is fetched, or an error is raised."""
_REQUEST_SECONDS = 5.0
_FIRST_WAIT_SECONDS = 0.2
_LARGEST = 16 << 20
_PIECE = 1 << 16
_MOST_REFERENCES = 1000
_TYPE = "application/vnd.schemaregistry.v1+json"
_ACCEPT = f"{_TYPE}, application/json"
_UNAUTHORISED = (401, 403)
_FOUND, _NOT_FOUND = 200, 404
_NO_SUCH_SCHEMA = (40401, 40402, 40403)
_LATER = (408, 429)
_FIRST_SERVER_ERROR = 500


class _Unavailable(Exception):
    """Reports a failure that another attempt may not meet."""


@dataclass(frozen=True)
class SchemaRegistry:
    """Fetches schemas from a registry.

    Attributes:
        url: URL of the registry; several of one registry are separated by commas, and tried in turn.
        user_info: ``user:password`` of basic authentication; also taken from the URL.
        timeout_seconds: time for one schema, attempts included.
    """

    url: str
    user_info: str | None = field(default=None, repr=False)
    timeout_seconds: float = TIMEOUT_SECONDS

    def __post_init__(self) -> None:
        """Check the URL, and take the user from it.

        Raises:
            ConfigError: not URLs of HTTP.
        """
        plain = []
        for text in filter(None, map(str.strip, self.url.split(","))):
            address, user_info = _split_user(text)
            plain.append(address)
            if user_info and not self.user_info:
                object.__setattr__(self, "user_info", user_info)
        if not plain:
            raise ConfigError("lsm.kafka.schema.registry.url is empty: write http://host:8081")
        if self.user_info and ":" not in self.user_info:
            raise ConfigError("lsm.kafka.schema.registry.basic.auth.user.info is not user:password")
        object.__setattr__(self, "url", ",".join(plain))

    @property
    def name(self) -> str:
        """The URL."""
        return self.url

    def check(self, timeout_seconds: float = 5.0) -> None:
        """Check that the registry answers.

        Raises:
            ConfigError: it does not, or it refuses the user.
        """
        try:
            # Of a path that old registries do not have, any answer shows that there is a server, and who it lets in.
            _Requests(self, timeout_seconds).send("/schemas/types")
        except RegistryError as error:
            raise ConfigError(f"lsm.kafka.schema.registry.url: {error}") from None

    def find(self, schema_id: int) -> WriterSchema | None:
        """Fetch a schema and the schemas that it refers to; None if the registry says that there is none.

        Raises:
            RegistryError: the registry does not answer within `timeout_seconds`, refuses the user, or answers something
                else than a registry does.
            SchemaError: the schema is not Avro.
        """
        return self._fetched(f"/schemas/ids/{schema_id}", schema_id)

    def newest(self, subject: str) -> WriterSchema | None:
        """Fetch the newest schema of a subject and the schemas that it refers to; None if the registry has none.

        Raises:
            RegistryError, SchemaError: see `find`.
        """
        return self._fetched(f"/subjects/{quote(subject, safe='')}/versions/latest", None)

    def _fetched(self, path: str, schema_id: int | None) -> WriterSchema | None:
        """Fetch a schema; its id is in the answer if it is not given."""
        requests = _Requests(self, self.timeout_seconds)
        found = requests.schema(path)
        if found is None:
            return None
        content, where = found
        if schema_id is None:
            schema_id = content["id"] if isinstance(content.get("id"), int) else 0
        text = _avro_of(content, where)
        references: dict[tuple[str, int], str] = {}
        for subject, version in _references(content, where):
            _add_reference(requests, (subject, version), references, ())
        return WriterSchema(schema_id, text, tuple(references.values()), where)

    def register(self, subject: str, text: str) -> int:
        """Register an Avro schema as the newest version of a subject, unless it is there; returns its id.

        Raises:
            RegistryError: the registry does not answer in time, or refuses the schema or the user.
        """
        path = f"/subjects/{quote(subject, safe='')}/versions"
        answer, url = _Requests(self, self.timeout_seconds).send(path, json.dumps({"schema": text}).encode())
        content = answer.content if isinstance(answer.content, dict) else {}
        if answer.status != _FOUND or not isinstance(content.get("id"), int):
            reason = str(content.get("message", ""))[:200]
            raise RegistryError(f"{url}: the schema registry refuses the schema (HTTP {answer.status}): {reason}")
        return int(content["id"])


_Version = tuple[str, int]
"""Subject and version of a schema."""


def _add_reference(
    requests: _Requests, version: _Version, found: dict[_Version, str], above: tuple[_Version, ...]
) -> None:
    """Fetch a schema that another one refers to, after those that it refers to itself."""
    if version in found:
        return
    subject, number = version
    if version in above or len(found) + len(above) >= _MOST_REFERENCES:
        raise SchemaError(
            f"version {number} of subject {subject!r} refers to itself, or there are more than {_MOST_REFERENCES} "
            "references: register the schema again"
        )
    answer = requests.schema(f"/subjects/{quote(subject, safe='')}/versions/{number}?deleted=true")
    if answer is None:
        raise RegistryError(
            f"version {number} of subject {subject!r}, to which another schema refers, is not known to "
            f"{requests.registry.name}: register it again, then start the query again"
        )
    content, where = answer
    text = _avro_of(content, where)
    for other in _references(content, where):
        _add_reference(requests, other, found, (*above, version))
    found[version] = text


@dataclass(frozen=True)
class _Answer:
    """Holds an answer of the registry: the status of HTTP, and the JSON."""

    status: int
    content: Any


class _Requests:
    """Sends the requests for one schema, within one limit of time."""

    def __init__(self, registry: SchemaRegistry, seconds: float) -> None:
        self.registry, self._seconds = registry, seconds
        self._deadline = time.monotonic() + seconds

    def schema(self, path: str) -> tuple[dict[str, Any], str] | None:
        """Fetch a schema, and return it with the URL that it came from; None if the registry has none.

        Raises:
            RegistryError: there is no answer in time, or one that no registry gives.
        """
        answer, url = self.send(path)
        content = answer.content if isinstance(answer.content, dict) else {}
        if answer.status == _FOUND and isinstance(content.get("schema"), str):
            return content, url
        if answer.status == _NOT_FOUND and content.get("error_code") in _NO_SUCH_SCHEMA:
            return None
        raise RegistryError(
            f"{url}: HTTP {answer.status} with an answer that no schema registry gives: correct "
            "lsm.kafka.schema.registry.url"
        )

    def send(self, path: str, body: bytes | None = None) -> tuple[_Answer, str]:
        """Send a request, a POST if it has a body; returns the answer, and the URL that it came from.

        Raises:
            RegistryError: there is no answer in time, or the registry refuses the user.
        """
        reasons: dict[str, str] = {}
        for address, wait in self._attempts():
            url = address + path
            try:
                answer = self._once(url, body)
            except _Unavailable as error:
                reasons[url] = str(error)
                time.sleep(max(0.0, min(wait, self._deadline - time.monotonic())))
                continue
            if answer.status in _UNAUTHORISED:
                raise RegistryError(
                    f"{url}: the schema registry refuses the user (HTTP {answer.status}): correct "
                    "lsm.kafka.schema.registry.basic.auth.user.info"
                )
            return answer, url
        tried = "; ".join(f"{url}: {reason}" for url, reason in reasons.items())
        raise RegistryError(
            f"the schema registry gives no answer within {self._seconds:.0f} s ({tried}): make it reachable, or "
            "correct lsm.kafka.schema.registry.url, then start the query again"
        )

    def _attempts(self) -> Iterator[tuple[str, float]]:
        """Yield the address of each attempt, and the seconds to wait after it, until time is up."""
        addresses, wait = self.registry.url.split(","), _FIRST_WAIT_SECONDS
        while True:
            for place, address in enumerate(addresses, 1):
                yield address, wait if place == len(addresses) else 0.0
                if time.monotonic() >= self._deadline:
                    return
            wait *= 2

    def _once(self, url: str, body: bytes | None) -> _Answer:
        request = Request(url, body, {"Accept": _ACCEPT, "Content-Type": _TYPE})
        if self.registry.user_info:
            secret = base64.b64encode(self.registry.user_info.encode()).decode()
            # A redirect to another host must not take the password along.
            request.add_unredirected_header("Authorization", f"Basic {secret}")
        try:
            answer = self._answer(request)
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise RegistryError(
                    f"{url}: the certificate is not trusted ({reason.verify_message}): name the file of its authority "
                    "in the environment variable SSL_CERT_FILE"
                ) from None
            raise _Unavailable(str(reason) or type(reason).__name__) from None
        if answer.status >= _FIRST_SERVER_ERROR or answer.status in _LATER:
            raise _Unavailable(f"HTTP {answer.status}")
        return answer

    def _answer(self, request: Request) -> _Answer:
        try:
            with urlopen(request, timeout=self._seconds_left()) as response:
                return _Answer(response.status, self._json(response))
        except HTTPError as error:
            with error:
                return _Answer(error.code, self._json(error))

    def _seconds_left(self) -> float:
        return max(0.1, min(_REQUEST_SECONDS, self._deadline - time.monotonic()))

    def _json(self, response: http.client.HTTPResponse | HTTPError) -> Any:
        """Read an answer; None if it is not JSON."""
        pieces, size = [], 0
        while piece := response.read1(_PIECE):
            pieces.append(piece)
            size += len(piece)
            if size > _LARGEST or time.monotonic() > self._deadline:
                raise _Unavailable(f"the answer does not end ({size} bytes)")
        # Python's client reports an answer that is cut off only where all of it is read by one call.
        left = getattr(response, "length", None)
        if left:
            raise _Unavailable(f"the answer is cut off ({size} of {size + left} bytes)")
        try:
            return parse_json(b"".join(pieces), None)
        except (ValueError, RecursionError):
            return None


def _avro_of(found: Mapping[str, Any], where: str) -> str:
    kind = found.get("schemaType", "AVRO")
    if kind != "AVRO":
        raise SchemaError(f"{where}: a schema of type {str(kind)[:80]}: only those of type AVRO are read")
    return str(found["schema"])


def _references(found: Mapping[str, Any], where: str) -> list[tuple[str, int]]:
    """Return subject and version of each schema that a schema refers to."""
    try:
        return [(str(one["subject"]), int(one["version"])) for one in found.get("references") or ()]
    except (TypeError, KeyError, ValueError):
        raise RegistryError(f"{where}: the references of the schema are malformed: register it again") from None


def _split_user(url: str) -> tuple[str, str | None]:
    """Split user and password from a URL.

    Raises:
        ConfigError: not a URL of HTTP; the message has no password.
    """
    parts = urlsplit(url)
    address = parts.netloc.rpartition("@")[2]
    if parts.scheme not in ("http", "https") or not address or parts.query or parts.fragment:
        shown = urlunsplit((parts.scheme, address, parts.path, "", ""))
        raise ConfigError(f"lsm.kafka.schema.registry.url: {shown!r} is no URL: write http://host:8081")
    user_info = unquote(parts.netloc.rpartition("@")[0]) or None
    return urlunsplit((parts.scheme, address, parts.path.rstrip("/"), "", "")), user_info
