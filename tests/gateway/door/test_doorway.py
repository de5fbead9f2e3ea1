"""What browsers, load balancers and readers of logs get at the public port."""

from pathlib import Path

import msgspec
import pytest
from tests.gateway.rig import KEY, Reply, Rig, ask, endpoint, engines, gateway, post, routes, says, until, whole

from stoker.facts.door import AccessLog, Cors, Door, Listener

pytestmark = pytest.mark.anyio

PAGE = "https://app.test"
BEARER = f"authorization: Bearer {KEY}"
PATHS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/models",
    "/v1/nothing",
    "/metrics",
    "/healthz",
)


def send(method: str, path: str, *headers: str) -> bytes:
    return f"{method} {path} HTTP/1.1\r\nhost: x\r\n{''.join(h + chr(13) + chr(10) for h in headers)}\r\n".encode()


def preflight(path: str, origin: str = PAGE) -> bytes:
    asked = "access-control-request-headers: authorization,content-type"
    return send("OPTIONS", path, f"origin: {origin}", "access-control-request-method: POST", asked)


def allowed(reply: Reply) -> str:
    return reply.header("access-control-allow-origin")


async def test_browsers_of_named_pages_may_ask_everywhere_and_read_every_error(tmp_path: Path) -> None:
    door = Door(cors=Cors(origins=(PAGE, "http://localhost:3000"), credentials=True))
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine), door=door)) as rig:
        for path in PATHS:
            for origin, want in (
                (PAGE, PAGE),
                ("http://localhost:3000", "http://localhost:3000"),
                ("https://evil.test", ""),
            ):
                asked = await rig.once(preflight(path, origin))
                assert (asked.status, allowed(asked)) == (200, want), path
                assert (asked.header("access-control-allow-headers") == "authorization,content-type") is bool(want)
                assert asked.header("vary").startswith("Origin")
                for auth in ((), ("x-api-key: wrong",), (BEARER,)):
                    told = await rig.once(send("GET", path, f"origin: {origin}", *auth))
                    assert allowed(told) == want, (path, auth, told.status)
        streamed = await rig.once(post(ask(stream=True), extra=f"origin: {PAGE}\r\n"))
        assert (streamed.status, allowed(streamed)) == (200, PAGE)
        assert streamed.header("access-control-allow-credentials") == "true"
        assert "x-request-id" in streamed.header("access-control-expose-headers")
        assert "x-ratelimit-remaining-tokens" in streamed.header("access-control-expose-headers")
        assert allowed(await rig.once(post(ask(stream=True)))) == ""  # no browser, no lines
        assert (await rig.once(send("OPTIONS", "/v1/models", f"origin: {PAGE}"))).status == 401  # no preflight
        assert all(b"access-control" not in seen.head for seen in engine.seen)


async def test_every_page_may_ask_where_the_owner_wants_that(tmp_path: Path) -> None:
    door = Door(cors=Cors(origins=("*",), headers=("authorization",), max_age=60))
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine), door=door)) as rig:
        asked = await rig.once(preflight("/v1/chat/completions"))
        assert allowed(asked) == "*"
        assert asked.header("access-control-allow-headers") == "authorization"
        assert asked.header("access-control-max-age") == "60"
        assert asked.header("access-control-allow-credentials") == ""


async def test_a_head_that_cannot_be_read_is_answered_like_any_other(tmp_path: Path) -> None:
    door = Door(cors=Cors(origins=(PAGE,)))
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine), door=door)) as rig:
        many = [f"a{number}: b" for number in range(200)]
        told = await rig.once(send("GET", "/v1/models", f"origin: {PAGE}", *many))
        assert (told.status, allowed(told)) == (431, PAGE)
        assert told.header("x-request-id").startswith("gateway-0-")
        assert told.header("content-type") == "application/json"


async def test_a_wrong_method_names_the_right_one_and_anthropic_clients_find_their_id(tmp_path: Path) -> None:
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        got = await rig.once(send("GET", "/v1/messages", BEARER))
        assert (got.status, got.header("allow")) == (405, "POST")
        put = await rig.once(send("PUT", "/v1/models", BEARER))
        assert (put.status, put.header("allow")) == (405, "GET")
        unknown = await rig.once(send("GET", "/v1/messages/batches", BEARER))
        assert unknown.status == 404
        assert unknown.header("request-id") == unknown.header("x-request-id") != ""


async def test_off_by_default(tmp_path: Path) -> None:
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        assert (await rig.once(preflight("/v1/models"))).status == 401
        for request in (preflight("/v1/models"), send("GET", "/v1/models", BEARER, f"origin: {PAGE}")):
            assert b"access-control" not in (await rig.once(request)).head


async def test_what_is_open_is_what_a_rule_opens(tmp_path: Path) -> None:
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine), door=Door(open=()))) as rig:
        for path in ("/healthz", "/readyz", "/", "/metrics"):
            assert [(await rig.once(send(m, path))).status for m in ("GET", "HEAD")] == [401, 401], path
        await rig.load(routes(endpoint(engine), door=Door(open=("Metrics",))))
        page = await rig.once(send("GET", "/metrics"))
        assert page.status == 200
        assert b"stoker_requests_in_flight" in page.body
        assert (await rig.once(send("GET", "/healthz"))).status == 401


def noted(rig: Rig) -> list[dict[str, object]]:
    path = rig.folder / "logs" / "access-0.log"
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()] if path.exists() else []


async def test_the_access_log_tells_who_came_and_nothing_secret(tmp_path: Path) -> None:
    listener = Listener(port=1, trusted_proxies=("127.0.0.0/8",))
    door = Door(access_log=AccessLog(), listeners=(listener,))
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine), door=door)) as rig:
        proxied = "x-forwarded-for: 6.6.6.6, 198.51.100.7\r\nx-request-id: mine\r\n"
        await rig.once(post(ask(stream=True, messages=[{"role": "user", "content": "my-prompt"}]), extra=proxied))
        await rig.once(post(ask(), path="/v1/chat/completions?key=sk-in-the-query", key="sk-wrong"))
        await rig.once(send("GET", "/healthz"))
        await rig.once(send("GET", "/v1/models", BEARER))
        engine.script = says(b"HTTP/1.1 400 Bad\r\ncontent-length: 2\r\n\r\n{}")
        await rig.once(post(ask()))
        await until(lambda: len(noted(rig)) == 4)
        text = (tmp_path / "logs" / "access-0.log").read_text()
    good, wrong, listed, failed = noted(rig)
    assert (good["client"], good["request_id"], good["caller"], good["status"]) == (
        "198.51.100.7",
        "mine",
        "alice",
        200,
    )
    assert (good["model"], good["endpoint"], good["outcome"], good["output_tokens"]) == ("tiny", "e1", "complete", 2)
    assert good["first_token_seconds"] > 0  # type: ignore[operator]
    assert (wrong["client"], wrong["status"], wrong["outcome"], wrong["detail"]) == (
        "127.0.0.1",
        401,
        "rejected",
        "auth",
    )
    assert (listed["path"], listed["status"]) == ("/v1/models", 200)
    assert (failed["status"], failed["outcome"]) == (400, "error")
    for secret in (KEY, "sk-wrong", "sk-in-the-query", "my-prompt", "Hé", "healthz"):
        assert secret not in text


async def test_forwarded_addresses_from_strangers_are_not_noted(tmp_path: Path) -> None:
    door = Door(access_log=AccessLog(), listeners=(Listener(port=1, trusted_proxies=("10.0.0.0/8",)),))
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine), door=door)) as rig:
        await rig.once(post(ask(), extra="x-forwarded-for: 6.6.6.6\r\nforwarded: for=6.6.6.6\r\n"))
        await until(lambda: len(noted(rig)) == 1)
        assert noted(rig)[0]["client"] == "127.0.0.1"


async def test_a_log_that_cannot_be_written_stops_no_request_and_is_told(tmp_path: Path) -> None:
    (tmp_path / "logs").write_bytes(b"in the way")
    door = Door(access_log=AccessLog())
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine), door=door)) as rig:
        for _ in range(3):
            assert (await rig.once(post(ask(stream=True)))).status == 200
        await until(lambda: "access log" in rig.worker.live().routes_error)
        await rig.load(routes(endpoint(engine)))  # switched off
        assert rig.worker.live().routes_error == ""
        assert (await rig.once(post(ask(stream=True)))).status == 200
