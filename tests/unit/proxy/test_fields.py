"""Which header fields go through the proxy (RFC 9110 §7.6)."""

from __future__ import annotations

from typing import Any

import pytest

from dspark_json.proxy.fields import Hop, passed_through, request_fields, response_fields, wants_websocket

HOP = Hop(b"up:1", "10.0.0.9", "http", b"me", forwarded=True, identity=False)
QUIET = Hop(b"up:1", "10.0.0.9", "http", b"me", forwarded=False, identity=False)
ENDS = [(b"host", b"up:1")], [(b"via", b"1.1 me")]


def sent(*given: tuple[bytes, bytes], hop: Hop = QUIET) -> list[tuple[bytes, bytes]]:
    return request_fields(given, hop)


@pytest.mark.parametrize(
    "name",
    ["connection", "keep-alive", "proxy-connection", "te", "trailer", "upgrade", "proxy-authorization", "Keep-Alive"],
)
def test_fields_of_one_hop_end_here_in_both_directions(name: str) -> None:
    field = (name.encode(), b"x")
    assert sent(field, (b"a", b"1")) == [*ENDS[0], (b"a", b"1"), *ENDS[1]]
    assert response_fields([field, (b"a", b"1")], 200) == [(b"a", b"1")]


def test_fields_that_connection_names_end_here_whatever_their_case() -> None:
    given = [
        (b"Connection", b"close, X-One"),
        (b"connection", b"x-two"),
        (b"X-ONE", b"1"),
        (b"x-two", b"2"),
        (b"x", b""),
    ]
    assert sent(*given) == [*ENDS[0], (b"x", b""), *ENDS[1]]
    assert response_fields(given, 200) == [(b"x", b"")]


def test_connection_can_not_take_away_what_a_message_means() -> None:
    kept = [
        (b"content-length", b"3"),
        (b"content-type", b"t"),
        (b"authorization", b"Bearer k"),
        (b"content-encoding", b"br"),
    ]
    named = (b"connection", b"content-length, content-type, authorization, content-encoding, host")
    assert sent(named, *kept) == [*ENDS[0], *kept, *ENDS[1]]
    assert response_fields([named, *kept], 200) == kept


def test_order_and_duplicates_stay() -> None:
    given = [(b"b", b"1"), (b"a", b"2"), (b"b", b"3"), (b"set-cookie", b"x=1"), (b"set-cookie", b"y=2")]
    assert sent(*given) == [*ENDS[0], *given, *ENDS[1]]
    assert response_fields(given, 200) == given


def test_the_key_for_the_model_passes_untouched() -> None:
    field = (b"authorization", b"Bearer sk-\xff secret")
    assert field in sent(field, hop=HOP)


def test_host_is_the_upstreams_and_the_upstream_is_told_who_asked() -> None:
    assert sent((b"host", b"proxy.example"), (b"a", b"1"), hop=HOP) == [
        (b"host", b"up:1"),
        (b"a", b"1"),
        (b"x-forwarded-for", b"10.0.0.9"),
        (b"x-forwarded-proto", b"http"),
        (b"x-forwarded-host", b"proxy.example"),
        (b"via", b"1.1 me"),
    ]


def test_what_a_proxy_before_told_stays_and_the_peer_comes_behind_it() -> None:
    given = [
        (b"x-forwarded-for", b"1.1.1.1"),
        (b"x-forwarded-proto", b"https"),
        (b"x-forwarded-for", b"2.2.2.2"),
        (b"x-forwarded-host", b"first.example"),
        (b"via", b"1.1 first"),
    ]
    found = sent((b"host", b"h"), *given, hop=HOP)
    assert (b"x-forwarded-for", b"1.1.1.1, 2.2.2.2, 10.0.0.9") in found
    assert [value for name, value in found if name == b"x-forwarded-proto"] == [b"https"]
    assert [value for name, value in found if name == b"x-forwarded-host"] == [b"first.example"]
    assert [value for name, value in found if name == b"via"] == [b"1.1 first", b"1.1 me"]


def test_without_forwarding_nothing_is_told_of_the_client() -> None:
    assert sent((b"host", b"proxy.example")) == [*ENDS[0], *ENDS[1]]


def test_a_chunked_body_stays_chunked_and_a_length_beside_it_goes() -> None:
    found = sent((b"transfer-encoding", b"chunked"), (b"content-length", b"7"))
    assert found == [*ENDS[0], (b"transfer-encoding", b"chunked"), *ENDS[1]]
    assert response_fields([(b"transfer-encoding", b"chunked"), (b"content-length", b"7")], 200) == []


def test_answers_that_the_hook_reads_are_asked_for_uncompressed() -> None:
    hop = Hop(b"up:1", None, "http", b"me", forwarded=False, identity=True)
    assert sent((b"accept-encoding", b"gzip, br"), hop=hop) == [*ENDS[0], (b"accept-encoding", b"identity"), *ENDS[1]]
    assert (b"accept-encoding", b"gzip, br") in sent((b"accept-encoding", b"gzip, br"))


def test_the_wait_for_100_continue_ends_here() -> None:
    assert sent((b"expect", b"100-continue")) == [*ENDS[0], *ENDS[1]]


@pytest.mark.parametrize("status", [204, 304])
def test_a_status_without_a_body_has_no_length(status: int) -> None:
    assert response_fields([(b"content-length", b"9"), (b"etag", b"x")], status) == [(b"etag", b"x")]


@pytest.mark.parametrize(
    ("value", "known"),
    [(b"1.1 me", True), (b"1.1 a, 1.1 me", True), (b"1.1 a,1.1 me (x)", True), (b"1.1 meme", False), (b"1.1 a", False)],
)
def test_a_request_that_was_here_before_is_known(value: bytes, known: bool) -> None:
    assert passed_through([(b"Via", value)], b"me") is known


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [([(b"Upgrade", b"WebSocket")], True), ([(b"upgrade", b"h2c")], False), ([], False)],
)
def test_only_a_websocket_is_one(fields: Any, wanted: bool) -> None:
    assert wants_websocket(fields) is wanted
