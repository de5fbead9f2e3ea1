"""What a manifest says about the door reaches the gateways as it was meant, and what is dangerous is refused."""

import pytest
from pydantic import ValidationError

from stoker.base.errors import Invalid
from stoker.control.routing import _caller, _door
from stoker.drivers.store.base import Resource
from stoker.facts.door import AccessLog, Auth, Cors, Door, Jwt, Listener
from stoker.facts.routes import Callers, Routes, Subject, open_callers, open_routes, seal
from stoker.spec.gateway import InferenceGatewaySpec

JWT = {"issuer": "https://i.test", "audience": ["stoker"], "jwksUri": "https://i.test/jwks"}


def read(**spec: object) -> Door:
    made = InferenceGatewaySpec.model_validate(spec, context="manifest")
    return open_routes(seal(Routes(generation=1, door=_door(made)))).door


def test_nothing_said_is_a_closed_door() -> None:
    assert read() == Door()


def test_everything_said_arrives() -> None:
    tls = {"certFile": "/c.pem", "keyFile": "/k.pem"}
    door = read(
        auth={
            "methods": ["APIKey", "JWT"],
            "jwt": {**JWT, "clockSkew": "5s", "callerClaim": "email", "algorithms": ["ES256"], "refresh": "1m"},
            "renewal": "Ask us.",
            "onRevoke": "Cut",
        },
        cors={"origins": ["https://a.test:8443", "http://localhost"], "maxAge": "5m", "credentials": True},
        accessLog={"to": "File", "maxSize": "1Mi", "keep": 2},
        listeners=[{"port": 8443, "tls": tls, "trustedProxies": ["10.0.0.0/8", "::1"]}],
        open=["Health"],
    )
    jwt = Jwt(
        issuer="https://i.test",
        audience=("stoker",),
        jwks_uri="https://i.test/jwks",
        clock_skew=5.0,
        caller_claim="email",
        algorithms=("ES256",),
        refresh=60.0,
    )
    listener = Listener(port=8443, cert_file="/c.pem", key_file="/k.pem", trusted_proxies=("10.0.0.0/8", "::1"))
    assert door == Door(
        auth=Auth(jwt=jwt, renewal="Ask us.", cut_revoked=True),
        cors=Cors(origins=("https://a.test:8443", "http://localhost"), max_age=300.0, credentials=True),
        access_log=AccessLog(max_bytes=1 << 20, keep=2),
        listeners=(listener,),
        open=("Health",),
    )


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        pytest.param({"cors": {"origins": ["*"], "credentials": True}}, "every web page", id="every page with cookies"),
        pytest.param({"cors": {"origins": ["a.test"]}}, "no origin", id="no scheme"),
        pytest.param({"cors": {"origins": ["https://a.test/app"]}}, "no origin", id="a path"),
        pytest.param({"cors": {"origins": []}}, "at least 1", id="no origins"),
        pytest.param({"auth": {"methods": ["JWT"]}}, "go together", id="JWT without its block"),
        pytest.param({"auth": {"jwt": JWT}}, "go together", id="a block without JWT"),
        pytest.param({"auth": {"methods": ["JWT"], "jwt": {**JWT, "jwksFile": "x"}}}, "exactly one", id="two sources"),
        pytest.param(
            {"auth": {"methods": ["JWT"], "jwt": {**JWT, "jwksUri": "http://i.test/jwks"}}}, "by https", id="in clear"
        ),
        pytest.param(
            {"auth": {"methods": ["JWT"], "jwt": {**JWT, "algorithms": ["HS256"]}}}, "HS256|RS256", id="shared secret"
        ),
        pytest.param({"auth": {"methods": ["JWT"], "jwt": {**JWT, "algorithms": ["none"]}}}, "RS256", id="unsigned"),
        pytest.param({"auth": {"methods": ["JWT"], "jwt": {**JWT, "refresh": "1s"}}}, "at least 10s", id="too often"),
        pytest.param({"listeners": [{"port": 1, "trustedProxies": ["10.0.0.1/8"]}]}, "host bits", id="no range"),
    ],
)
def test_what_is_dangerous_is_refused(spec: dict[str, object], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        read(**spec)


def test_callers_of_tokens_arrive() -> None:
    spec = {
        "credentials": [
            {"type": "JWT", "subject": "ann@x", "expiresAt": "2030-01-01T00:00:00Z"},
            {"type": "JWT", "id": "second", "subject": "ann", "issuer": "https://j.test", "revoked": True},
        ],
        "onRevoke": "Cut",
    }
    made = _caller(Resource(kind="Caller", name="ann", spec=spec))  # type: ignore[arg-type]
    (ann,) = open_callers(seal(Callers(generation=1, callers=(made,)))).callers
    assert ann.keys == ()
    assert ann.cut_revoked is True
    assert ann.subjects == (
        Subject(id="ann@x", subject="ann@x", expires_at=1893456000.0),
        Subject(id="second", subject="ann", issuer="https://j.test", revoked=True),
    )


@pytest.mark.parametrize(
    ("credential", "told"),
    [
        ({"type": "JWT"}, "takes a subject"),
        ({"type": "JWT", "subject": "a", "hash": "sha256:" + "0" * 64}, "takes a subject"),
        ({"subject": "a", "hash": "sha256:" + "0" * 64}, "belong to type JWT"),
        ({}, "exactly one of hash"),
    ],
)
def test_mixed_credentials_are_refused(credential: dict[str, object], told: str) -> None:
    with pytest.raises(Invalid, match=told):
        _caller(Resource(kind="Caller", name="ann", spec={"credentials": [credential]}))  # type: ignore[dict-item]
