"""Each topic has its options and its table, or the job says before it reads what is missing."""

from __future__ import annotations

import pytest

from streaming_lsm import config
from streaming_lsm.errors import ConfigError
from streaming_lsm.kafka.settings import JobSettings
from streaming_lsm.kafka.topic_tables import check_tables, topic_tables

TWO = {"kafka.bootstrap.servers": "a:1", "subscribe": "shop.orders, shop.users"}
PATTERN = {"kafka.bootstrap.servers": "a:1", "subscribePattern": r"shop\..*"}
OF = "lsm.kafka.topic."


def settings(*parts: dict[str, str], **more: str) -> JobSettings:
    return JobSettings.load(None, {key: value for part in (*parts, more) for key, value in part.items()})


def test_an_option_of_a_topic_overrides_the_common_one_and_texts_have_the_name_of_the_topic() -> None:
    given = settings(
        TWO,
        {
            "lsm.table.path": "/lake/{topic}",
            "lsm.kafka.format": "debezium-json",
            "hoodie.table.name": "t_{topic}",
            f"{OF}shop.users.kafka.format": "json",
            f"{OF}shop.users.hoodie.table.ordering.fields": "version",
            f"{OF}shop.orders.table.path": "/other/{topic}",
        },
    )
    orders, users = topic_tables(given, given.topics)
    assert [(one.topics, one.path) for one in (orders, users)] == [
        (("shop.orders",), "/other/shop.orders"),
        (("shop.users",), "/lake/shop.users"),
    ]
    assert [one.settings.options[config.KAFKA_FORMAT] for one in (orders, users)] == ["debezium-json", "json"]
    assert [one.settings.options[config.TABLE_NAME] for one in (orders, users)] == ["t_shop.orders", "t_shop.users"]
    assert [one.settings.options[config.ORDERING_FIELDS] for one in (orders, users)] == [(), ("version",)]
    assert check_tables(given) == [orders, users]


def test_several_topics_of_one_table_are_refused_unless_that_is_said() -> None:
    refused = (
        r"topics 'shop\.orders' and 'shop\.users' have one table, '/lake/x', where rows of one would replace rows of "
        r"the other: give each a table \(lsm\.table\.path with \{topic\}, as in /lake/\{topic\}, or lsm\.kafka\.topic\."
        r"<topic>\.table\.path\); or set lsm\.kafka\.topics\.share\.table=true"
    )
    path = {"lsm.table.path": "/lake/x"}
    with pytest.raises(ConfigError, match=refused):
        check_tables(settings(TWO, path))
    with pytest.raises(ConfigError, match=r"have one table, 'file:///lake/y/\.\./x'"):
        check_tables(settings(TWO, path, {f"{OF}shop.users.table.path": "file:///lake/y/../x"}))
    (shared,) = check_tables(settings(TWO, path, {"lsm.kafka.topics.share.table": "true"}))
    assert (shared.topics, shared.path) == (("shop.orders", "shop.users"), "/lake/x")
    subjects = {"lsm.kafka.topics.share.table": "true", "lsm.kafka.schema.subject": "{topic}-row"}
    (shared,) = check_tables(settings(TWO, path, subjects))
    assert shared.settings.options[config.SCHEMA_SUBJECT] == "shop.orders-row"
    with pytest.raises(
        ConfigError, match=r"share the table '/lake/x', and lsm\.kafka\.format is not the same for both"
    ):
        check_tables(
            settings(TWO, path, {"lsm.kafka.topics.share.table": "true", f"{OF}shop.users.kafka.format": "avro"})
        )


def test_a_topic_without_a_table_is_named() -> None:
    with pytest.raises(ConfigError, match=r"topic 'shop\.users' has no table: set lsm\.kafka\.topic\.shop\.users\.tab"):
        check_tables(settings(TWO, {f"{OF}shop.orders.table.path": "/lake/x"}))


def test_tables_do_not_mix_their_dead_letters() -> None:
    letters = {"lsm.table.path": "/lake/{topic}", "lsm.on.bad.event": "dead_letter", "lsm.dead.letter.path": "/dead"}
    with pytest.raises(
        ConfigError, match=r"one lsm\.dead\.letter\.path, '/dead': give each a folder, as with /dead/\{"
    ):
        check_tables(settings(TWO, letters))
    assert len(check_tables(settings(TWO, letters, {"lsm.dead.letter.path": "/dead/{topic}"}))) == 2


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("shop.order.table.path", r"topic 'shop\.order' is none of subscribe=shop\.orders,shop\.users"),
        ("shop.orders.table.pth", r"names no option: .*; did you mean lsm\.kafka\.topic\.<topic>\.table\.path\?"),
        ("shop.orders.checkpointLocation", "checkpointLocation is an option of the query"),
        ("shop.orders.trigger", r"lsm\.trigger is an option of the query"),
    ],
)
def test_an_option_of_a_topic_that_means_nothing_is_refused(key: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        settings(TWO, {OF + key: "x"})


def test_a_malformed_value_of_a_topic_is_named_with_its_topic() -> None:
    given = settings(TWO, {"lsm.table.path": "/l/{topic}", f"{OF}shop.users.kafka.format": "xml"})
    with pytest.raises(ConfigError, match=r"lsm\.kafka\.topic\.shop\.users: lsm\.kafka\.format='xml'"):
        check_tables(given)


def test_topics_of_a_pattern_need_tables_that_are_told_apart() -> None:
    assert settings(PATTERN).source()["subscribePattern"] == r"shop\..*"
    said = (
        r"subscribePattern=shop\\\..\* may select several topics, and lsm\.table\.path='/lake/x' is the table of each"
    )
    with pytest.raises(ConfigError, match=said):
        check_tables(settings(PATTERN, {"lsm.table.path": "/lake/x"}))
    share = {"lsm.table.path": "/lake/x", "lsm.kafka.topics.share.table": "true"}
    assert [table.path for table in check_tables(settings(PATTERN, share))] == ["/lake/x"]
    each = {"lsm.table.path": "/lake/{topic}"}
    assert [table.path for table in check_tables(settings(PATTERN, each))] == ["/lake/{topic}"]
    letters = {"lsm.on.bad.event": "dead_letter", "lsm.dead.letter.path": "/dead"}
    with pytest.raises(ConfigError, match=r"lsm\.dead\.letter\.path='/dead' is the folder of each: .* /dead/\{topic\}"):
        check_tables(settings(PATTERN, each, letters))
    # No topic is named in the place of those that may come.
    assert len(check_tables(settings(PATTERN, each, {f"{OF}shop.users.table.path": "/lake/another"}))) == 2
    own = {f"{OF}shop.users.table.path": "/lake/users"}
    (users,) = check_tables(settings(PATTERN, own))
    assert (users.topics, users.path) == (("shop.users",), "/lake/users")
    with pytest.raises(ConfigError, match=r"topic 'other' is none of subscribePattern=shop"):
        settings(PATTERN, {f"{OF}other.table.path": "/lake/users"})
    with pytest.raises(ConfigError, match="subscribe and subscribePattern are both set"):
        settings(PATTERN, TWO).source()


def test_a_pattern_that_only_java_reads_takes_the_options_of_any_topic() -> None:
    given = settings({"subscribePattern": r"\p{Lower}+"}, {f"{OF}users.table.path": "/lake/users"})
    assert [table.path for table in check_tables(given)] == ["/lake/users"]
