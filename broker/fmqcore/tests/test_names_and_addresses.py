"""Names and broker URLs: what is valid, and the sentence about what is not."""

import pytest

from fmqcore.address import is_host, parse_url
from fmqcore.errors import InvalidArgument
from fmqcore.names import MAX_NAME, is_name, no_name, require_name


@pytest.mark.parametrize(
    ("url", "addresses"),
    [
        ("fmq://a", ("a:9876",)),
        ("fmq://a:1", ("a:1",)),
        ("fmq://a:65535/", ("a:65535",)),
        ("fmq://a:007", ("a:7",)),
        ("fmq://a, b:2,a:9876,b:2", ("a:9876", "b:2")),
        ("fmq://10.0.0.1:5,g1-0.orders_x", ("10.0.0.1:5", "g1-0.orders_x:9876")),
        ("fmq://[::1]", ("[::1]:9876",)),
        ("fmq://[fe80::1%eth0]:5", ("[fe80::1%eth0]:5",)),
    ],
)
def test_a_url_names_each_broker_once(url: str, addresses: tuple[str, ...]) -> None:
    assert parse_url(url) == addresses


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "begins with fmq://"),
        ("http://a", "begins with fmq://"),
        (None, "begins with fmq://"),
        ("fmq://", "is not host:port"),
        ("fmq://a,", "is not host:port"),
        ("fmq://a:", "is not host:port"),
        ("fmq://a:b", "is not host:port"),
        ("fmq://a:-1", "is not host:port"),
        ("fmq://a:²", "is not host:port"),
        ("fmq://a b:1", "is not host:port"),
        ("fmq://[::1", "is not host:port"),
        ("fmq://[::1]:", "is not host:port"),
        ("fmq://[::1]5", "is not host:port"),
        ("fmq://[g::1]:5", "is not host:port"),
        ("fmq://::1:5", "is not host:port"),
        ("fmq://a:0", "not within 1..65535"),
        ("fmq://a:65536", "not within 1..65535"),
    ],
)
def test_a_url_that_is_none_is_refused(url: str, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        parse_url(url)


def test_a_host_is_a_name_or_an_address_and_nothing_else() -> None:
    assert all(map(is_host, ("a", "g1-0.x", "10.0.0.1", "[::1]", "x" * 253)))
    assert not any(map(is_host, ("", "a:1", "::1", "a/b", "[]", "x" * 254)))


@pytest.mark.parametrize(
    ("name", "valid"),
    [
        ("a", True), ("A9", True), ("a.b-c_d", True), ("a_", True), ("x" * MAX_NAME, True),
        ("", False), ("-a", False), ("a-", False), ("a.", False), ("a b", False), ("a/b", False),
        ("ü", False), ("x" * (MAX_NAME + 1), False),
    ],
)  # fmt: skip
def test_a_name_is_valid_or_the_rule_is_stated(name: str, valid: bool) -> None:
    assert is_name(name) is valid
    if valid:
        require_name("topic", name)
        return
    with pytest.raises(InvalidArgument, match="is no name for a topic: 1 to 128 letters"):
        require_name("topic", name)


def test_a_long_name_is_cut_in_the_sentence() -> None:
    assert no_name("topic", 7).startswith("7 is no name for a topic")
    assert no_name("topic", "x" * 158).startswith(f"'{'x' * 158}' is no name")
    assert no_name("topic", "x" * 159).startswith(f"'{'x' * 159}... (161 characters) is no name")
    with pytest.raises(InvalidArgument, match="None is no name"):
        require_name("topic", None)
