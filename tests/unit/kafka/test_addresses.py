"""Brokers and topics are looked for before Spark starts; what is wrong is said in seconds, with the address."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from functools import partial
from uuid import UUID

import pytest

from streaming_lsm.errors import ConfigError
from streaming_lsm.kafka.addresses import UnknownTopics, check_brokers, check_source, look_at_source
from tests.support.fake_broker import Answer, broker, closing, listener, saying, silent

BROKER = broker({}, {})
check_shortly = partial(check_source, bootstrap_seconds=0.3, leader_seconds=0.3)


def source(servers: str, topics: str = "orders", **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": servers, "subscribe": topics, **more}


def refusal(check: Callable[[dict[str, str]], None], checked: dict[str, str]) -> ConfigError:
    with pytest.raises(ConfigError) as failed:
        check(checked)
    return failed.value


def free_address() -> str:
    """An address where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def test_one_broker_that_answers_is_enough_and_the_others_are_not_waited_for() -> None:
    begun = time.monotonic()
    with listener(BROKER) as address, listener(silent) as hole:
        check_brokers(f"127.0.0.1:1, {hole}, nowhere.invalid:9092, PLAINTEXT://{address} ,")
        check_brokers(address.replace("127.0.0.1", "localhost"))
        check_brokers(address, security="SASL_PLAINTEXT")
    assert time.monotonic() - begun < 3


def test_every_broker_that_does_not_answer_is_named_with_the_reason() -> None:
    with pytest.raises(ConfigError, match=r"no broker answers \(127\.0\.0\.1:1: Connection refused; \[::1\]:1: .*\)"):
        check_brokers("127.0.0.1:1,[::1]:1")


def test_a_host_that_has_no_address_is_named() -> None:
    with pytest.raises(ConfigError, match=r"\(nowhere\.invalid:9092: the host is not known: "):
        check_brokers("nowhere.invalid:9092")


def test_a_port_that_accepts_and_never_answers_is_told_after_the_limit() -> None:
    begun = time.monotonic()
    with listener(silent) as first, listener(silent) as second, pytest.raises(ConfigError) as failed:
        check_brokers(f"{first},{second}", 0.3)
    assert str(failed.value).endswith(f"({first}: no answer within 0.3 s; {second}: no answer within 0.3 s)")
    assert time.monotonic() - begun < 3


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (closing, "it closes the connection: it is no broker, or expects TLS"),
        (saying(b"\x15\x03\x03\x00\x02\x02\x28"), "it speaks TLS: set kafka.security.protocol=SSL or SASL_SSL"),
        (saying(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "its answer is none of a Kafka broker"),
        (saying(b"\x00\x00\x00\x0a" + bytes(10)), "its answer belongs to no request"),
        (saying(b"\x00\x00\x00\x0alsm"), "it closes the connection"),
        (saying(b"\x00\x00\x00\x05\x6c\x73\x6d\x00\x00"), "its answer"),
    ],
    ids=["closes", "TLS", "HTTP", "other", "cut", "short"],
)
def test_a_port_of_another_kind_is_told_from_a_broker(answer: Answer, said: str) -> None:
    with listener(answer) as address, pytest.raises(ConfigError) as failed:
        check_brokers(address, 2)
    assert f"{address}: {said}" in str(failed.value)


@pytest.mark.parametrize("answer", [closing, BROKER, saying(b"\x00\x00\x00\x0a")], ids=["closes", "broker", "other"])
def test_a_broker_without_tls_is_told_where_the_client_is_to_use_it(answer: Answer) -> None:
    with listener(answer) as address, pytest.raises(ConfigError, match=r"it does not speak TLS, as .*=SASL_SSL says"):
        check_shortly(source(address, **{"kafka.security.protocol": "SASL_SSL"}), bootstrap_seconds=2)


def test_a_tls_port_that_wants_a_certificate_of_the_client_is_good_enough() -> None:
    refused_handshake = saying(b"\x15\x03\x03\x00\x02\x02\x28")
    with listener(refused_handshake) as address:
        check_shortly(source(address, **{"kafka.security.protocol": "SSL"}), bootstrap_seconds=2)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("localhost", "'localhost' is not an address: write host:port"),
        ("localhost:", "'localhost:' is not an address: write host:port"),
        ("localhost:kafka", "'localhost:kafka' is not an address: write host:port"),
        ("localhost:99999", "'localhost:99999' is not an address: write host:port"),
        (":9092", "':9092' is not an address: write host:port"),
        (" , ", "no address is given"),
    ],
)
def test_a_malformed_address_is_named(address: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_brokers(address)


def test_leaders_that_answer_under_their_advertised_addresses_are_good() -> None:
    with listener(BROKER) as leader, listener(broker({1: leader, 2: "gone.invalid:1"}, {"orders": {0: 1}})) as address:
        check_source(source(address))


def test_an_advertised_address_that_cannot_be_reached_is_named() -> None:
    """The classic: the bootstrap server answers, and names addresses of an inner network."""
    nowhere = free_address()
    brokers = {1: nowhere, 2: "inner.invalid:9092"}
    with listener(broker(brokers, {"orders": {0: 1, 1: 2}})) as address, pytest.raises(ConfigError) as failed:
        check_source(source(address))
    assert str(failed.value).startswith(
        f"kafka.bootstrap.servers='{address}' answers, but not the address that its brokers advertise "
        f"({nowhere}: Connection refused; inner.invalid:9092: the host is not known: "
    )


def test_an_advertised_address_that_never_answers_is_named() -> None:
    with listener(silent) as hole, listener(broker({1: hole}, {"orders": {0: 1}})) as address:
        failed = refusal(check_shortly, source(address))
    assert f"advertise ({hole}: no answer within 0.3 s)" in str(failed)


def test_a_partition_without_a_leader_is_named_once_it_was_waited_for() -> None:
    with listener(broker({1: "127.0.0.1:1"}, {"orders": {0: 1, 1: -1}})) as address:
        failed = refusal(check_shortly, source(address))
    assert "partition 1 of topic 'orders' has no leader among the brokers at" in str(failed)


@pytest.mark.parametrize(
    ("topics", "said"),
    [
        ("order", "; did you mean 'orders'?"),
        ("orders, zebra", "topic 'zebra' is not on the brokers at "),
    ],
)
def test_a_topic_that_is_not_there_is_named(topics: str, said: str) -> None:
    with listener(BROKER) as leader, listener(broker({1: leader}, {"orders": {0: 1}})) as address:
        failed = refusal(check_source, source(address, topics))
    assert isinstance(failed, UnknownTopics)
    assert said in str(failed)


def test_a_topic_is_missing_only_if_no_broker_has_it() -> None:
    def slow(connection: socket.socket) -> None:
        time.sleep(0.2)
        knowing(connection)

    with listener(BROKER) as leader:
        knowing = broker({1: leader}, {"orders": {0: 1}})
        with listener(slow) as other, listener(broker({}, {"users": {}})) as behind, listener(silent) as hole:
            check_source(source(f"{behind},{other},{hole}"))
            failed = refusal(check_shortly, source(f"{behind},{other},{hole}", "orders,order"))
            assert "topic 'order' is not on the brokers at" in str(failed)
            assert str(failed).endswith("did you mean 'orders'?")
        with listener(slow) as other, listener(broker({2: other}, {})) as behind:
            check_source(source(behind))


def test_a_client_that_authenticates_itself_is_not_asked_for_topics() -> None:
    with listener(BROKER) as address:
        check_source(source(address, "any", **{"kafka.security.protocol": "SASL_PLAINTEXT"}))


FIRST, SECOND = UUID(int=1), UUID("ffeeddcc-bbaa-9988-7766-554433221100")


def test_ids_of_topics_come_with_what_is_asked_anyway() -> None:
    topics = {"orders": {0: 1, 1: 1}, "users": {0: 1}, "x" * 249: {}}
    with listener(BROKER) as leader, listener(broker({1: leader}, topics, {"orders": FIRST, "users": SECOND})) as here:
        assert check_source(source(here, "users,orders")) == {"users": SECOND, "orders": FIRST}
        pattern = {"kafka.bootstrap.servers": here, "subscribePattern": ".*"}
        assert check_source(pattern) == {"orders": FIRST, "users": SECOND, "x" * 249: None}
        failed = refusal(check_source, source(here, "users,order"))
    assert isinstance(failed, UnknownTopics)
    assert str(failed).endswith("did you mean 'orders'?")


def test_ids_of_the_other_topics_are_known_where_one_has_trouble() -> None:
    look_shortly = partial(look_at_source, bootstrap_seconds=0.3, leader_seconds=0.3)
    nowhere = free_address()
    topics, ids = {"a": {0: 1}, "b": {0: 2}, "c": {0: -1}}, {"a": FIRST, "b": SECOND, "c": SECOND}
    with listener(BROKER) as leader, listener(broker({1: leader, 2: nowhere}, topics, ids)) as address:
        for ill, said in (("b", "not the address"), ("c", "has no leader"), ("d", "is not on the brokers")):
            look = look_shortly(source(address, f"a,{ill}"))
            assert look.ids["a"] == FIRST
            assert said in str(look.trouble)
            assert set(look.ids) <= {"a", ill}


def test_a_later_answer_adds_topics_and_replaces_none() -> None:
    def slow(connection: socket.socket) -> None:
        time.sleep(0.2)
        behind(connection)

    with listener(BROKER) as leader:
        fresh = broker({1: leader}, {"a": {0: 1}}, {"a": SECOND})
        behind = broker({1: leader}, {"a": {0: 1}, "b": {0: 1}}, {"a": FIRST, "b": FIRST})
        with listener(fresh) as one, listener(slow) as other:
            assert check_source(source(f"{one},{other}", "a,b")) == {"a": SECOND, "b": FIRST}


def test_brokers_without_ids_of_topics_are_told() -> None:
    """Those that have no Metadata of version 10, those that give zeros, and those that may not be asked."""
    with listener(BROKER) as leader:
        for ids in (None, {}):
            with listener(broker({1: leader}, {"orders": {0: 1}}, ids)) as address:
                assert check_source(source(address)) == {"orders": None}
                assert check_source({"kafka.bootstrap.servers": address, "subscribePattern": "o.*"}) == {"orders": None}
        assert check_source(source(leader, "a,b", **{"kafka.security.protocol": "SASL_PLAINTEXT"})) == {
            "a": None,
            "b": None,
        }
