"""Whom do we believe about a client's address?"""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.gateway.door.address import client

TRUSTED = tuple(ipaddress.ip_network(each) for each in ("10.0.0.0/8", "fd00::/8", "127.0.0.1"))


@pytest.mark.parametrize(
    ("peer", "headers", "want"),
    [
        pytest.param("192.0.2.9", {}, "192.0.2.9", id="nothing said"),
        pytest.param("192.0.2.9", {b"x-forwarded-for": b"1.2.3.4"}, "192.0.2.9", id="a stranger is not believed"),
        pytest.param("192.0.2.9", {b"forwarded": b"for=1.2.3.4"}, "192.0.2.9", id="nor in the other words"),
        pytest.param("10.0.0.1", {}, "10.0.0.1", id="a proxy that says nothing"),
        pytest.param("10.0.0.1", {b"x-forwarded-for": b"198.51.100.7"}, "198.51.100.7", id="one proxy"),
        pytest.param(
            "10.0.0.1",
            {b"x-forwarded-for": b"6.6.6.6, 198.51.100.7, 10.2.2.2"},
            "198.51.100.7",
            id="a forged first hop",
        ),
        pytest.param("10.0.0.1", {b"x-forwarded-for": b"10.3.3.3, 10.2.2.2"}, "10.3.3.3", id="all are ours"),
        pytest.param("10.0.0.1", {b"x-forwarded-for": b"198.51.100.7:4711"}, "198.51.100.7", id="with a port"),
        pytest.param("10.0.0.1", {b"x-forwarded-for": b"unknown, 10.2.2.2"}, "10.2.2.2", id="a hidden client"),
        pytest.param("10.0.0.1", {b"x-forwarded-for": b"<script>"}, "10.0.0.1", id="nonsense"),
        pytest.param(
            "10.0.0.1",
            {b"forwarded": b'for="[2001:db8::7]:80";proto=https, for=10.9.9.9'},
            "2001:db8::7",
            id="rfc 7239",
        ),
        pytest.param("10.0.0.1", {b"forwarded": b"For=198.51.100.7;by=10.0.0.1"}, "198.51.100.7", id="any case"),
        pytest.param("10.0.0.1", {b"forwarded": b"for=_hidden"}, "10.0.0.1", id="an obfuscated name"),
        pytest.param("fd00::1", {b"x-forwarded-for": b"2001:db8::9"}, "2001:db8::9", id="IPv6"),
        pytest.param("::ffff:10.0.0.1", {b"x-forwarded-for": b"198.51.100.7"}, "198.51.100.7", id="IPv4 in IPv6"),
        pytest.param("", {b"x-forwarded-for": b"198.51.100.7"}, "", id="no peer"),
    ],
)
def test_client(peer: str, headers: dict[bytes, bytes], want: str) -> None:
    assert client(peer, headers, TRUSTED) == want
    if peer != want:
        assert client(peer, headers, ()) == peer


@given(st.binary(max_size=80), st.sampled_from([b"x-forwarded-for", b"forwarded"]))
def test_whatever_a_proxy_writes_an_address_comes_out(value: bytes, name: bytes) -> None:
    ipaddress.ip_address(client("10.0.0.1", {name: value}, TRUSTED))
