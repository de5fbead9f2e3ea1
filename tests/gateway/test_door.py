"""Who gets in, what they may see, and what is written about those who do not."""

import hashlib
from pathlib import Path

import msgspec
import pytest
from tests.gateway.rig import (
    DONE,
    KEY,
    OTHER,
    WHOLE,
    ask,
    caller,
    endpoint,
    engines,
    gateway,
    post,
    routes,
    silent,
    until,
    whole,
)

from stoker.base import clock
from stoker.facts.ending import Outcome
from stoker.facts.probe import CALLER, HEADER, sign
from stoker.facts.routes import Caller, Callers, Key, Limits, Service, State, Target, seal

pytestmark = pytest.mark.anyio


def get(path: str, *headers: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nhost: x\r\n{''.join(h + chr(13) + chr(10) for h in headers)}\r\n".encode()


BEARER = f"authorization: Bearer {KEY}"
KEYS = {
    "good": {},
    "revoked": {"revoked": True},
    "expired": {"expires_at": 1.0},
    "early": {"not_before": 9e9},
}


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        pytest.param((), "missing_api_key", id="none"),
        pytest.param(("authorization: Bearer nobody",), "invalid_api_key", id="unknown"),
        pytest.param(("authorization: Basic good",), "invalid_api_key", id="another scheme"),
        pytest.param(("authorization: Bearer good", "x-api-key: other"), "conflicting_api_keys", id="two keys"),
        pytest.param(("authorization: Bearer good", "authorization: Bearer good"), "invalid_api_key", id="twice"),
        pytest.param(("x-api-key: revoked",), "invalid_api_key", id="revoked"),
        pytest.param(("x-api-key: expired",), "invalid_api_key", id="expired"),
        pytest.param(("x-api-key: early",), "invalid_api_key", id="not valid yet"),
        pytest.param((f"{HEADER}: e1;e1-1;9999999999;00",), "invalid_probe", id="a forged probe"),
        pytest.param((f"{HEADER}: x", "x-api-key: good"), "invalid_probe", id="a forged probe with a good key"),
    ],
)
async def test_nobody_without_one_valid_key(tmp_path: Path, headers: tuple[str, ...], code: str) -> None:
    keys = tuple(
        msgspec.structs.replace(Key(id=name, sha256=hashlib.sha256(name.encode()).hexdigest()), **fields)
        for name, fields in KEYS.items()
    )
    async with gateway(tmp_path, None, callers=(Caller(name="a", keys=keys),)) as rig:  # no routes, no model is ready
        for path in ("/v1/models", "/v1/nothing", "/elsewhere"):
            reply = await rig.once(get(path, *headers))
            assert (reply.status, msgspec.json.decode(reply.body)["error"]["code"]) == (401, code)
            assert reply.header("x-should-retry") == "false"
        record = await rig.record(3)
        assert (record.outcome, record.detail, record.status) == (Outcome.REJECTED, "auth", 401)
        assert (await rig.once(get("/v1/models", "x-api-key: good"))).status == 200
        assert (await rig.once(get("/v1/models", "authorization: bearer good", "x-api-key: good"))).status == 200


async def test_open_paths_say_little(tmp_path: Path) -> None:
    async with engines(whole) as (engine,), gateway(tmp_path, None) as rig:
        assert (await rig.once(get("/healthz"))).status == 200
        assert (await rig.once(get("/readyz"))).status == 503
        assert (await rig.once(get("/"))).body == b""
        assert (await rig.once(get("/", method="HEAD"))).status == 200
        assert (await rig.once(get("/", method="POST"))).status == 401
        await rig.load(routes(endpoint(engine, state=State.PROBE)))
        assert (await rig.once(get("/readyz"))).status == 503
        await rig.load(routes(endpoint(engine)))
        assert (await rig.once(get("/readyz"))).status == 200


async def test_callers_see_and_use_their_own_models_only(tmp_path: Path) -> None:
    async with engines(whole) as (engine,):
        policy = routes(endpoint(engine))
        secret = Service(name="team/secret", models=("secret-7b",), targets=(Target(endpoints=("e1",)),))
        policy = msgspec.structs.replace(policy, services=(*policy.services, secret))
        people = (caller("alice", KEY, services=("default/tiny",)), caller("bob", OTHER))
        async with gateway(tmp_path, policy, callers=people) as rig:
            mine = msgspec.json.decode((await rig.once(get("/v1/models", BEARER))).body)
            assert [model["id"] for model in mine["data"]] == ["tiny", "default/tiny"]
            assert (await rig.once(get("/v1/models/default/tiny", BEARER))).status == 200
            assert (await rig.once(get("/v1/models/default%2Ftiny", BEARER))).status == 200
            assert (await rig.once(get("/v1/models/secret-7b", BEARER))).status == 404
            refused = await rig.once(post(ask(model="secret-7b")))
            absent = await rig.once(post(ask(model="nothing-7b")))
            assert refused.status == absent.status == 404
            assert refused.body.replace(b"secret", b"nothing") == absent.body  # it may not even be guessed
            near = msgspec.json.decode((await rig.once(post(ask(model="tinny")))).body)["error"]
            assert near["code"] == "model_not_found"
            assert "Did you mean 'tiny'?" in near["message"]
            assert (await rig.once(post(ask(model="secret-7b", stream=True), key=OTHER))).status == 200


@pytest.mark.parametrize(
    ("request_", "status", "code"),
    [
        pytest.param(get("/v1/nothing", BEARER), 404, "unknown_url", id="unknown path"),
        pytest.param(get("/v1/chat/completions", BEARER), 405, "method_not_allowed", id="wrong method"),
        pytest.param(post(b"{", path="/v1/chat/completions"), 400, "invalid_body", id="no JSON"),
        pytest.param(post({"messages": []}), 400, "invalid_body", id="no model"),
        pytest.param(post(ask(max_tokens="many")), 400, "invalid_body", id="wrong type"),
        pytest.param(post(ask(), extra="content-encoding: gzip\r\n"), 415, "content_encoding", id="encoded"),
        pytest.param(post(ask(), path="/v1/embeddings"), 400, "unsupported_endpoint", id="no engine for it"),
        pytest.param(post(b"x" * 3000), 413, "body_too_large", id="too large"),
    ],
)
async def test_refusals_have_the_right_status_and_a_record(
    tmp_path: Path, request_: bytes, status: int, code: str
) -> None:
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine), body_bytes=2000)) as rig:
        reply = await rig.once(request_)

        assert (reply.status, msgspec.json.decode(reply.body)["error"]["code"]) == (status, code)
        assert reply.header("x-request-id")
        record = await rig.record()
        assert (record.outcome, record.status, record.caller) == (Outcome.REJECTED, status, "alice")
        assert engine.seen == []


async def test_no_serving_endpoint_is_told(tmp_path: Path) -> None:
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine, state=State.DRAIN))) as rig:
        reply = await rig.once(post(ask()))

        assert (reply.status, reply.header("retry-after")) == (503, "5")
        assert (await rig.record()).detail == "no_endpoint"


async def test_output_is_capped_by_the_lowest_limit(tmp_path: Path) -> None:
    people = (caller("alice", KEY, limits=Limits(max_output_tokens=64)),)
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine), cap=256), callers=people) as rig:
        for given in (
            {},
            {"max_tokens": 1000},
            {"max_completion_tokens": 1000},
            {"max_tokens": None},
            {"n_predict": -1},
        ):
            await rig.once(post(ask(stream=True, **given)))
        bodies = [msgspec.json.decode(seen.body) for seen in engine.seen]
        names = ("max_tokens", "max_completion_tokens", "n_predict")
        assert [[body[name] for name in names if name in body] for body in bodies] == [[64]] * 5


async def test_probe_reaches_the_named_incarnation_whatever_its_state(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    key = b"0123456789abcdef0123456789abcdef"
    (tmp_path / "keys" / "probe.key").write_bytes(key + b"\n")
    async with engines(whole, whole) as (old, new):
        policy = routes(endpoint(old, "old"), endpoint(new, "new", state=State.PROBE))
        async with gateway(tmp_path, policy) as rig:

            def probe(name: str, incarnation: str, expires: float) -> bytes:
                value = sign(key, endpoint=name, incarnation=incarnation, expires_at=expires)
                return post(ask(stream=True, model="any"), key=None, extra=f"{HEADER}: {value}\r\n")

            soon = clock.now() + 60
            assert (await rig.once(probe("new", "new-1", soon))).body.endswith(DONE)
            assert (await rig.once(probe("new", "new-0", soon))).status == 404
            assert (await rig.once(probe("new", "new-1", 1.0))).status == 401
            assert (len(old.seen), len(new.seen)) == (0, 1)
            record = await rig.record()
            assert (record.caller, record.endpoint) == (CALLER, "new")
            for _ in range(4):
                await rig.once(post(ask(stream=True)))
            assert len(new.seen) == 1  # nobody else comes there
            assert all("stoker:probe" not in key for key in map(str, rig.worker.house.meter.requests))


async def test_limits_of_a_caller(tmp_path: Path) -> None:
    people = (
        caller("alice", KEY, limits=Limits(concurrent=1)),
        caller("bob", OTHER, limits=Limits(requests_per_minute=3)),
    )
    async with engines(silent) as (engine,), gateway(tmp_path, routes(endpoint(engine)), callers=people) as rig:
        first = await rig.connect()
        first.send(post(ask(stream=True)))
        await until(lambda: len(engine.seen) == 1)
        second = await rig.once(post(ask(stream=True)))
        assert (second.status, (await rig.record()).detail) == (429, "concurrent")
        first.close()
        await rig.idle()
        engine.script = whole
        assert (await rig.once(post(ask(stream=True)))).status == 200
        statuses = [(await rig.once(post(ask(stream=True), key=OTHER))).status for _ in range(5)]
        assert statuses == [200, 200, 200, 429, 429]


async def test_bad_files_keep_the_last_good_ones(tmp_path: Path) -> None:
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        good = (tmp_path / "routes.json").read_bytes()
        for bad in (good[:-40], good.replace(b"127.0.0.1", b"127.0.0.9"), b"", b"null"):
            (tmp_path / "routes.json").write_bytes(bad)
            await until(lambda: "routes.json" in rig.worker.live().routes_error)
            assert (await rig.once(post(ask(stream=True)))).body.endswith(DONE)
        broken = Callers(generation=9, callers=(Caller(name="x", keys=(Key(id="k", sha256="no hash"),)),))
        (tmp_path / "callers.json").write_bytes(seal(broken))
        await until(lambda: "callers.json" in rig.worker.live().routes_error)
        assert (await rig.once(post(ask(stream=True)))).status == 200
        (tmp_path / "callers.json").write_bytes(seal(Callers(generation=10)))
        await until(lambda: rig.worker.live().callers_generation == 10)
        assert (await rig.once(post(ask(stream=True)))).status == 401
        await rig.load(routes(endpoint(engine)))
        assert rig.worker.live().routes_error == ""


async def test_full_disk_refuses_before_the_engine_is_asked(tmp_path: Path) -> None:
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        rig.worker.house.meter._spool.accounting = "refusing"
        reply = await rig.once(post(ask(stream=True)))

        assert (reply.status, msgspec.json.decode(reply.body)["error"]["code"]) == (503, "accounting_unavailable")
        assert engine.seen == []
        rig.worker.house.meter._spool.accounting = "ok"
        assert (await rig.once(post(ask(stream=True)))).status == 200


async def test_request_id_is_kept_when_it_is_harmless(tmp_path: Path) -> None:
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        kept = await rig.once(post(ask(stream=True), extra="x-request-id: abc-1\r\n"))
        made = await rig.once(post(ask(stream=True), extra="x-request-id: a b<script>\r\n"))

        assert kept.header("x-request-id") == "abc-1"
        assert b"x-request-id: abc-1\r\n" in engine.seen[0].head
        assert made.header("x-request-id").startswith("gateway-0-")
        assert (await rig.record()).request_id == "abc-1"


async def test_admin_port_speaks(tmp_path: Path) -> None:
    async with engines(whole) as (engine,), gateway(tmp_path, routes(endpoint(engine))) as rig:
        await rig.once(post(ask(stream=True)))
        rig.port = rig.admin
        page = (await rig.once(get("/metrics"))).body.decode()
        assert 'stoker_tokens_total{worker="0",service="default/tiny",kind="output"} 2\n' in page
        assert 'stoker_request_duration_seconds_bucket{worker="0",service="default/tiny",le="+Inf"} 1\n' in page
        live = msgspec.json.decode((await rig.once(get("/live"))).body)
        assert (live["records_written"], live["routes_generation"]) == (1, 1)
        assert (await rig.once(get("/healthz"))).status == 200
        assert (await rig.once(get("/nothing"))).status == 404
        assert (await rig.once(post(WHOLE, path="/live"))).status == 405
