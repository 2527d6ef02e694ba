"""Schemas fetched by HTTP from a real server, and from one that fails; and from a folder."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from streaming_lsm.decode.avro.written_types import written_type
from streaming_lsm.errors import ConfigError, RegistryError, SchemaError
from streaming_lsm.kafka.demo.registry_server import RegistryServer
from streaming_lsm.schema_registry.kept_schemas import KeptSchemas, schema_of
from streaming_lsm.schema_registry.registry import SchemaRegistry
from streaming_lsm.schema_registry.sources import SchemaFolder, WriterSchema
from tests.support.avro_messages import record

SECRET = "app:s3cret/+é:x"
LONG = json.dumps("long")


@pytest.fixture(scope="module")
def server() -> Iterator[RegistryServer]:
    with RegistryServer() as running:
        yield running


@pytest.fixture(scope="module")
def closed() -> Iterator[RegistryServer]:
    """A registry that wants a password."""
    with RegistryServer(user_info=SECRET) as running:
        yield running


@contextmanager
def answering(
    *answers: tuple[int, bytes] | Callable[[BaseHTTPRequestHandler], None],
) -> Iterator[tuple[str, list[str]]]:
    """A server that gives one answer after the other, the last one again; yields its URL and the paths asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def do_GET(self) -> None:
            asked.append(self.path)
            answer = answers[min(len(asked), len(answers)) - 1]
            if callable(answer):
                answer(self)
                return
            self.send_response(answer[0])
            self.end_headers()
            self.wfile.write(answer[1])

        def log_message(self, *_: object) -> None:
            """Do not print requests."""

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=running.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{running.server_address[1]}", asked
    finally:
        running.shutdown()
        running.server_close()
        thread.join()


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_schema_is_fetched_by_id(server: RegistryServer) -> None:
    schema_id = server.register("orders-value", LONG)
    found = SchemaRegistry(server.url + "/").find(schema_id)
    assert found is not None
    assert (found.id, found.text, found.references) == (schema_id, LONG, ())
    assert found.source == f"{server.url}/schemas/ids/{schema_id}"


def test_the_newest_schema_of_a_subject_is_fetched_with_its_references(server: RegistryServer) -> None:
    registry = SchemaRegistry(server.url)
    assert registry.newest("a/b-value") is None
    server.register("newest-part", json.dumps(record(("x", "int"), name="Part")))
    for text in (LONG, json.dumps(record(("p", "Part")))):
        newest = server.register("a/b-value", text, [("Part", "newest-part", 1)])
    found = registry.newest("a/b-value")
    assert found is not None
    assert (found.id, found.source) == (newest, f"{server.url}/subjects/a%2Fb-value/versions/latest")
    assert written_type(found).fields["p"].fields["x"].kind == "int"
    server.register("proto-value", "x", kind="PROTOBUF")
    with pytest.raises(SchemaError, match="a schema of type PROTOBUF: only those of type AVRO are read"):
        registry.newest("proto-value")


def test_schemas_are_registered_once(server: RegistryServer) -> None:
    registry = SchemaRegistry(server.url)
    first, again, other = (registry.register("a/b-value", text) for text in (LONG, LONG, json.dumps("bytes")))
    assert first == again != other
    assert [found.text for one in (first, other) if (found := registry.find(one))] == [LONG, json.dumps("bytes")]
    body = json.dumps({"error_code": 42201, "message": "Invalid schema"}).encode()
    with answering((422, body)) as (url, _), pytest.raises(RegistryError, match=r"refuses the schema .HTTP 422.: Inv"):
        SchemaRegistry(url).register("s", "{")


def test_references_are_fetched_in_the_order_in_which_they_name_each_other(server: RegistryServer) -> None:
    country = {"type": "enum", "name": "Country", "namespace": "shop", "symbols": ["DE", "FR"]}
    address = record(("country", "shop.Country"), ("street", "string"), name="Address", namespace="shop")
    order = record(("home", "Address"), ("work", ["null", "shop.Address"]), ("to", "Country"), namespace="shop")
    server.register("shop/Country", json.dumps(country))
    server.register("shop.Address", json.dumps(address), [("shop.Country", "shop/Country", 1)])
    schema_id = server.register(
        "order", json.dumps(order), [("shop.Address", "shop.Address", 1), ("shop.Country", "shop/Country", 1)]
    )
    found = SchemaRegistry(server.url).find(schema_id)
    assert found is not None
    assert list(map(json.loads, found.references)) == [country, address]
    written = written_type(found)
    assert [written.fields["work"].fields["country"].kind, written.fields["to"].kind] == ["enum", "enum"]


def test_references_in_a_circle_or_to_a_schema_that_is_gone_are_told(server: RegistryServer) -> None:
    server.register("circle", LONG, [("a", "circle", 1)])
    circle = server.register("circle", json.dumps("int"), [("a", "circle", 1)])
    with pytest.raises(SchemaError, match="version 1 of subject 'circle' refers to itself"):
        SchemaRegistry(server.url).find(circle)
    gone = server.register("orphan", LONG, [("a", "no such", 3)])
    with pytest.raises(RegistryError, match=f"version 3 of subject 'no such', .* is not known to {server.url}"):
        SchemaRegistry(server.url).find(gone)


def test_an_unknown_id_is_told_with_url_and_remedy(server: RegistryServer) -> None:
    registry = SchemaRegistry(server.url)
    assert registry.find(999_999) is None
    with pytest.raises(
        RegistryError, match=f"schema 999999 is not known to {server.url}: register it again, or put it as"
    ):
        schema_of([registry], 999_999)


@pytest.mark.parametrize("kind", ["PROTOBUF", "JSON"])
def test_a_schema_of_another_kind_is_refused_by_name(server: RegistryServer, kind: str) -> None:
    schema_id = server.register(f"other-{kind}", 'syntax = "proto3";', kind=kind)
    with pytest.raises(
        SchemaError, match=f"{server.url}/schemas/ids/{schema_id}: a schema of type {kind}: only .* AVRO"
    ):
        SchemaRegistry(server.url).find(schema_id)


def test_a_schema_is_fetched_once() -> None:
    with answering((200, json.dumps({"schema": LONG}).encode())) as (url, asked):
        for _ in range(3):
            assert schema_of([SchemaRegistry(url)], 7).text == LONG
        assert asked == ["/schemas/ids/7"]


def test_schemas_are_kept_within_a_limit_of_memory() -> None:
    kept, found = KeptSchemas(most_characters=25), list[int]()

    def ask(number: int, characters: int = 10) -> None:
        def find() -> WriterSchema:
            found.append(number)
            return WriterSchema(number, "x" * (characters - 1), ("y",), "")

        assert kept.get(number, find).id == number

    for number in (1, 2, 1, 3, 1, 2):
        ask(number)
    assert found == [1, 2, 3, 2]
    ask(4, 100)
    ask(4, 100)
    ask(1)
    assert found == [1, 2, 3, 2, 4, 1]


def test_user_and_password_are_sent_and_never_shown(closed: RegistryServer) -> None:
    schema_id = closed.register("orders-value", LONG)
    in_url = closed.url.replace("http://", "http://app:s3cret%2F%2B%C3%A9%3Ax@")
    for registry in (SchemaRegistry(closed.url, SECRET), SchemaRegistry(in_url)):
        assert registry.find(schema_id) is not None
        registry.check()
        assert "s3cret" not in f"{registry!r} {registry} {registry.name} {registry.url}"
    wrong = SchemaRegistry(in_url.replace("s3cret", "wr0ng"))
    for ask in (lambda: wrong.find(schema_id), wrong.check):
        with pytest.raises((RegistryError, ConfigError), match="refuses the user") as refused:
            ask()
        assert "wr0ng" not in str(refused.value)
        assert "lsm.kafka.schema.registry.basic.auth.user.info" in str(refused.value)


def test_a_redirect_does_not_take_the_password_along(closed: RegistryServer) -> None:
    seen: list[str | None] = []

    def note(handler: BaseHTTPRequestHandler) -> None:
        seen.append(handler.headers.get("Authorization"))
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(json.dumps({"schema": LONG}).encode())

    with answering(note) as (target, _):

        def redirect(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(302)
            handler.send_header("Location", target + handler.path)
            handler.end_headers()

        with answering(redirect) as (url, _):
            assert SchemaRegistry(url, SECRET).find(1) is not None
    assert seen == [None]


def test_an_unreachable_registry_is_told_in_time_with_its_url() -> None:
    url = f"http://127.0.0.1:{unused_port()}"
    begun = time.monotonic()
    with pytest.raises(RegistryError, match=f"gives no answer within 1 s .{url}/schemas/ids/7: .*refused"):
        SchemaRegistry(url, timeout_seconds=1).find(7)
    assert 0.5 < time.monotonic() - begun < 5
    with pytest.raises(ConfigError, match=f"lsm.kafka.schema.registry.url: .*{url}"):
        SchemaRegistry(url).check(timeout_seconds=0.3)


def test_a_registry_that_fails_for_a_moment_is_asked_again() -> None:
    good = (200, json.dumps({"schema": LONG}).encode())
    with answering((503, b"starting"), (429, b"{}"), lambda handler: handler.connection.close(), good) as (url, asked):
        assert SchemaRegistry(url).find(7) is not None
    assert len(asked) == 4


def test_an_answer_that_is_cut_off_is_asked_for_again() -> None:
    good = json.dumps({"schema": LONG}).encode()

    def cut(status: int) -> Callable[[BaseHTTPRequestHandler], None]:
        def answer(handler: BaseHTTPRequestHandler) -> None:
            handler.send_response(status)
            handler.send_header("Content-Length", str(len(good)))
            handler.end_headers()
            handler.wfile.write(good[:5])

        return answer

    with answering(cut(200), cut(404), (200, good)) as (url, asked):
        assert SchemaRegistry(url).find(7) is not None
    assert len(asked) == 3
    said = rf"no answer within 0 s \(.*: the answer is cut off \(5 of {len(good)} bytes\)\)"
    with answering(cut(200)) as (url, _), pytest.raises(RegistryError, match=said):
        SchemaRegistry(url, timeout_seconds=0.3).find(7)


def test_the_second_of_several_urls_is_asked_when_the_first_is_down(server: RegistryServer) -> None:
    schema_id = server.register("orders-value", LONG)
    down = f"http://127.0.0.1:{unused_port()}"
    assert SchemaRegistry(f"{down}, {server.url}").find(schema_id) is not None


def test_an_answer_that_does_not_end_is_given_up() -> None:
    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        for _ in range(100):
            try:
                handler.wfile.write(b" ")
                handler.wfile.flush()
            except OSError:
                return
            time.sleep(0.05)

    begun = time.monotonic()
    with answering(drip) as (url, _), pytest.raises(RegistryError, match="does not end"):
        SchemaRegistry(url, timeout_seconds=0.5).find(7)
    assert time.monotonic() - begun < 4


WRONG = [
    (200, b"<html>"),
    (200, b"[1]"),
    (200, b'{"schema":5}'),
    (404, b"<html>not found"),
    (404, b'{"error_code":404,"message":"HTTP 404 Not Found"}'),
    (400, b"{}"),
    (200, b"[" * 100_000),
]


@pytest.mark.parametrize(("status", "body"), WRONG)
def test_an_answer_that_no_registry_gives_is_told(status: int, body: bytes) -> None:
    with (
        answering((status, body)) as (url, asked),
        pytest.raises(RegistryError, match=f"{url}.*: HTTP {status} with an"),
    ):
        SchemaRegistry(url).find(7)
    assert len(asked) == 1


def test_malformed_references_are_told() -> None:
    body = json.dumps({"schema": LONG, "references": [{"name": "a"}]}).encode()
    with (
        answering((200, body)) as (url, _),
        pytest.raises(RegistryError, match="references of the schema are malformed"),
    ):
        SchemaRegistry(url).find(7)


@pytest.mark.parametrize("url", ["", "host:8081", "ftp://host", "http://", "http://user:pa55@", "http://h/?q=pa55"])
def test_what_is_no_url_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError, match=r"lsm\.kafka\.schema\.registry\.url") as refused:
        SchemaRegistry(url)
    assert "pa55" not in str(refused.value)


def test_user_without_a_password_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"basic\.auth\.user\.info is not user:password"):
        SchemaRegistry("http://host:8081", "user")


def test_schemas_may_be_files_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "7.avsc").write_text(LONG)
    for path in (str(tmp_path), tmp_path.as_uri()):
        found = SchemaFolder(path).find(7)
        assert found is not None
        assert (found.text, found.source) == (LONG, f"{tmp_path.as_uri()}/7.avsc")
    assert SchemaFolder(str(tmp_path)).find(8) is None
    assert SchemaFolder(str(tmp_path)).newest("t-value") is None
    (tmp_path / "t-value.avsc").write_text(LONG)
    newest = SchemaFolder(str(tmp_path)).newest("t-value")
    assert newest is not None
    assert (newest.text, newest.source) == (LONG, f"{tmp_path.as_uri()}/t-value.avsc")
    with pytest.raises(RegistryError, match=f"schema 8 is not known to {tmp_path}"):
        schema_of([SchemaFolder(str(tmp_path))], 8)


def test_a_file_comes_before_the_registry(tmp_path: Path, server: RegistryServer) -> None:
    schema_id = server.register("orders-value", LONG)
    (tmp_path / f"{schema_id + 1}.avsc").write_text(json.dumps("int"))
    sources = [SchemaFolder(str(tmp_path)), SchemaRegistry(server.url)]
    assert [schema_of(sources, one).text for one in (schema_id, schema_id + 1)] == [LONG, json.dumps("int")]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "1.avsc").write_bytes(b"\xff\xfe")
    (tmp_path / "2.avsc").mkdir()
    os.mkfifo(tmp_path / "3.avsc")
    (tmp_path / "4.avsc").write_text(" \n")
    with pytest.raises(RegistryError, match=r"/4\.avsc: the file is empty: write the schema into it"):
        SchemaFolder(str(tmp_path)).find(4)
    with pytest.raises(RegistryError, match=r"there is no folder '.*/none': correct the path"):
        SchemaFolder(str(tmp_path / "none")).find(4)
    (tmp_path / "5.avsc").write_text("{")
    with pytest.raises(SchemaError, match=r"/5\.avsc: not an Avro schema .*: '{'; correct the file <id>\.avsc, or reg"):
        written_type(schema_of([SchemaFolder(str(tmp_path))], 5))
    for number in (1, 2, 3):
        with pytest.raises(RegistryError, match=rf"/{number}\.avsc: the schema cannot be read"):
            SchemaFolder(str(tmp_path)).find(number)
