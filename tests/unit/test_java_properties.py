import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.java_properties import parse_properties, print_properties

TEXT = st.text(st.characters(exclude_categories=[]), max_size=20)


@given(st.dictionaries(TEXT, TEXT, max_size=8), st.lists(TEXT, max_size=3))
def test_printed_properties_read_back_as_they_were(values: dict[str, str], comments: list[str]) -> None:
    assert parse_properties(print_properties(values, comments)) == _joined(values)


def _joined(values: dict[str, str]) -> dict[str, str]:
    """Two lone surrogates side by side are one character in Java's UTF-16."""

    def join(text: str) -> str:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")

    return {join(key): join(value) for key, value in values.items()}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (b"a=b", {"a": "b"}),
        (b"a:b\r\nc d\re   =   f  ", {"a": "b", "c": "d", "e": "f  "}),
        (b"# x=y\n! x=y\n\n  \t\n  a=b", {"a": "b"}),
        (b"#comment \\\na=b", {"a": "b"}),
        (b"a = b\\\n    c\\\\\nd=e", {"a": "bc\\", "d": "e"}),
        (b"a=1\\\n#2", {"a": "1#2"}),
        (b"a=1\\\n\nb=2", {"a": "1", "b": "2"}),
        (b"a\\=b\\:c\\ d=e=f", {"a=b:c d": "e=f"}),
        (b"a=\\t\\n\\u00E9\\uD83D\\uDE00\\z", {"a": "\t\né😀z"}),
        (b"a=\xe9", {"a": "é"}),
        (b"a=1\na=2", {"a": "2"}),
        (b"key\n=v", {"key": "", "": "v"}),
        (b"a=b\\", {"a": "b"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: bytes, values: dict[str, str]) -> None:
    assert parse_properties(text) == values


def test_text_beyond_ascii_and_separators_are_escaped() -> None:
    printed = print_properties({"a b": " c=d:e#!", "é": "😀\x7f"}, ["first", "two\nlines"])
    assert printed == (b"#first\n#two\n#lines\na\\ b=\\ c\\=d\\:e\\#\\!\n\\u00E9=\\uD83D\\uDE00\\u007F\n")


def test_a_malformed_escape_names_the_file() -> None:
    with pytest.raises(CorruptFileError, match=r"table\.properties: malformed escape"):
        parse_properties(b"a=\\u12", "table.properties")
