"""Every way in which a token can be wrong, and every way in which an issuer can be away."""

import asyncio
import base64
import hashlib
import hmac
from pathlib import Path

import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.identity.issuer import AUDIENCE, NAME, Issuer, claims, key_set, private, public, token

from stoker.base import clock
from stoker.facts.door import Auth, Jwt
from stoker.facts.routes import Caller, Callers, Key, Subject
from stoker.gateway.identity import Denial, Grant, Identities
from stoker.gateway.identity.keyring import Keyring, read
from stoker.gateway.identity.tokens import Judge

pytestmark = pytest.mark.anyio

PEOPLE = Callers(
    generation=1,
    callers=(
        Caller(name="ann", subjects=(Subject(id="ann-sub", subject="ann"),)),
        Caller(name="rob", subjects=(Subject(id="rob-sub", subject="rob", revoked=True),)),
        Caller(name="eve", subjects=(Subject(id="eve-sub", subject="eve", expires_at=1.0),)),
        Caller(name="one", subjects=(Subject(id="one-sub", subject="twin"),)),
        Caller(name="two", subjects=(Subject(id="two-sub", subject="twin"),)),
        Caller(name="far", subjects=(Subject(id="far-sub", subject="ann", issuer="https://other.test"),)),
        Caller(name="key", keys=(Key(id="k", sha256=hashlib.sha256(b"sk-1").hexdigest()),)),
    ),
)


def rules(**changes: object) -> Jwt:
    base = Jwt(issuer=NAME, audience=(AUDIENCE,), jwks_file="jwks.json", algorithms=("RS256", "ES256", "EdDSA"))
    return msgspec.structs.replace(base, **changes)


def identities(folder: Path, *kids: str, auth: Auth | None = None, **changes: object) -> Identities:
    (folder / "jwks.json").write_bytes(key_set(*(kids or ("rs-1", "es-1", "ed-1"))))
    given_rules = rules(**changes)
    ring = Keyring(given_rules, folder)
    ring.poll(0.0)
    auth = auth or Auth(jwt=given_rules)
    return Identities(PEOPLE, auth, Judge(given_rules, ring))


def ask(known: Identities, shown: str, *, at: float | None = None) -> Grant | Denial:
    headers = {b"authorization": b"Bearer " + shown.encode()}
    return known.identify(headers, now=clock.now() if at is None else at)


@pytest.mark.parametrize("kid", ["rs-1", "es-1", "ed-1"])
def test_a_good_token_is_its_caller(tmp_path: Path, kid: str) -> None:
    known = identities(tmp_path)
    for _ in range(2):  # judged, then remembered
        found = ask(known, token(kid))
        assert isinstance(found, Grant)
        assert (found.caller.name, found.key.id) == ("ann", "ann-sub")
    by_other_header = known.identify({b"x-api-key": token(kid).encode()}, now=clock.now())
    assert isinstance(by_other_header, Grant)
    assert isinstance(ask(known, "sk-1"), Grant)  # keys go on beside tokens


def unsigned() -> str:
    return jwt.encode(claims(), "", algorithm="none", headers={"kid": "rs-1"})


def confused() -> str:
    """Signed by HMAC with the public key as its secret: whoever believes the header's alg lets everybody in."""
    secret = private("rs-1").public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)  # type: ignore[union-attr]
    said = (msgspec.json.encode(part) for part in ({"alg": "HS256", "kid": "rs-1"}, claims()))
    signed = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in said)
    mac = base64.urlsafe_b64encode(hmac.digest(secret, signed, "sha256")).rstrip(b"=")
    return (signed + b"." + mac).decode()


def tampered() -> str:
    head, _, signature = token().split(".")
    body = base64.urlsafe_b64encode(msgspec.json.encode(claims(sub="ann", admin=True))).rstrip(b"=").decode()
    return f"{head}.{body}.{signature}"


@pytest.mark.parametrize(
    ("shown", "message"),
    [
        pytest.param(unsigned, "not valid", id="alg none"),
        pytest.param(confused, "not valid", id="HS256 with the public key"),
        pytest.param(tampered, "not valid", id="other claims under a good signature"),
        pytest.param(lambda: token("rs-2", header={"kid": "rs-1"}), "not valid", id="another key under a known name"),
        pytest.param(lambda: token("es-1", header={"kid": "rs-1"}), "not valid", id="another sort of key"),
        pytest.param(lambda: token("es384-1"), "not valid", id="an algorithm that is not named"),
        pytest.param(lambda: token("rs-9"), "not valid", id="an unknown key of a file"),
        pytest.param(lambda: token(header={"crit": ["b64"], "b64": False}), "not valid", id="critical extension"),
        pytest.param(lambda: token(iss="https://evil.test"), "not valid", id="another issuer"),
        pytest.param(lambda: token(aud="other"), "another audience", id="another audience"),
        pytest.param(lambda: token(aud=None), "another audience", id="no audience"),
        pytest.param(lambda: token(exp=None), "not valid", id="no end"),
        pytest.param(lambda: token(exp=clock.now() - 31), "has expired", id="expired"),
        pytest.param(lambda: token(nbf=clock.now() + 40), "not valid yet", id="not yet"),
        pytest.param(lambda: token(iat=clock.now() + 40), "not valid yet", id="from the future"),
        pytest.param(lambda: token(sub=7), "no text in its claim 'sub'", id="a subject that is no text"),
        pytest.param(lambda: token(sub=None), "no text in its claim 'sub'", id="no subject"),
        pytest.param(lambda: token(sub="rob"), "was revoked", id="a revoked subject"),
        pytest.param(lambda: token(sub="eve"), "has expired", id="a subject whose time is over"),
        pytest.param(lambda: "a.b.c", "not valid", id="three parts of nothing"),
        pytest.param(lambda: "..", "not valid", id="two dots"),
        pytest.param(lambda: "e30.e30.", "not valid", id="empty objects"),
        pytest.param(lambda: token() + "x" * 17_000, "not valid", id="a very long one"),
        pytest.param(lambda: "garbage", "not valid", id="no token at all"),
    ],
)
def test_nobody_with_a_bad_token(tmp_path: Path, shown: object, message: str) -> None:
    found = ask(identities(tmp_path), shown())  # type: ignore[operator]
    assert isinstance(found, Denial)
    assert (found.status, found.retry_after) == (401, 0)
    assert message in found.message


@pytest.mark.parametrize(("skew", "let_in"), [(30.0, True), (5.0, False)])
def test_skew_of_clocks_counts_at_both_ends(tmp_path: Path, skew: float, *, let_in: bool) -> None:
    known = identities(tmp_path, clock_skew=skew)
    for made in (token(exp=clock.now() - 10), token(nbf=clock.now() + 10, iat=None)):
        assert isinstance(ask(known, made), Grant) is let_in


def test_who_is_meant(tmp_path: Path) -> None:
    known = identities(tmp_path, caller_claim="login")
    assert isinstance(ask(known, token(login="ann", sub="somebody", aud=["x", AUDIENCE])), Grant)
    for subject in ("stranger", "twin"):  # two callers with one subject: neither
        found = ask(known, token(login=subject))
        assert isinstance(found, Denial)
        assert (found.status, found.code) == (403, "unknown_caller")


def test_a_remembered_token_ends_when_it_expires_or_its_key_goes(tmp_path: Path) -> None:
    known = identities(tmp_path)
    shown = token(exp=clock.now() + 60)
    assert isinstance(ask(known, shown), Grant)
    late = ask(known, shown, at=clock.now() + 91)
    assert isinstance(late, Denial)
    assert late.message == "The token has expired. Get a new one from its issuer."
    assert (late.caller, late.key_id) == ("ann", "ann-sub")

    (tmp_path / "jwks.json").write_bytes(key_set("rs-1"))
    given_rules = rules()
    ring = Keyring(given_rules, tmp_path)
    ring.poll(0.0)
    known = Identities(PEOPLE, Auth(jwt=given_rules), Judge(given_rules, ring))
    shown = token()
    assert isinstance(ask(known, shown), Grant)
    (tmp_path / "jwks.json").write_bytes(key_set("rs-2", "es-1"))
    ring.poll(1.0)
    assert isinstance(ask(known, shown), Denial)


def test_a_hot_token_is_not_judged_again(tmp_path: Path) -> None:
    known = identities(tmp_path)
    judged = 0
    judge = known._judge
    assert judge is not None

    class Counting(Judge):
        def judge(self, token: bytes, *, now: float) -> object:  # type: ignore[override]
            nonlocal judged
            judged += 1
            return super().judge(token, now=now)

    known._judge = Counting(judge._rules, judge._ring)
    shown = token()
    assert all(isinstance(ask(known, shown), Grant) for _ in range(50))
    assert judged == 1
    many = [token(jti=str(number)) for number in range(3)]
    assert all(isinstance(ask(known, each), Grant) for each in many)
    assert len(known._remembered) == 4


def test_methods_are_closed_unless_named(tmp_path: Path) -> None:
    only_tokens = identities(tmp_path, auth=Auth(api_keys=False, jwt=rules()))
    assert isinstance(ask(only_tokens, "sk-1"), Denial)
    assert isinstance(ask(only_tokens, token()), Grant)
    assert isinstance(ask(Identities(PEOPLE), token()), Denial)
    told = ask(Identities(PEOPLE, Auth(renewal="See https://keys.test."), only_tokens._judge), token(exp=1))
    assert isinstance(told, Denial)
    assert told.message == "The token has expired. See https://keys.test."


@given(st.binary(max_size=200))
def test_no_bytes_break_it(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    ring = Keyring(rules(), tmp_path_factory.getbasetemp())
    known = Identities(PEOPLE, Auth(jwt=rules()), Judge(rules(), ring))
    dotted = b".".join((data[:60], data[60:120], data[120:]))
    for shown in (data, dotted):
        assert isinstance(known.identify({b"x-api-key": shown}, now=0.0), Denial)


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param([], id="empty"),
        pytest.param([{"kty": "oct", "k": "c2VjcmV0", "kid": "rs-1"}], id="a shared secret"),
        pytest.param([public("rs-1", use="enc")], id="for encryption"),
        pytest.param([public("short-1")], id="too short"),
        pytest.param([{"kty": "RSA", "n": 5}, 7], id="no keys"),
    ],
)
def test_key_sets_without_a_usable_key_are_refused(keys: list[object]) -> None:
    with pytest.raises(ValueError, match="no public RSA"):
        read(msgspec.json.encode({"keys": keys}))


def test_one_odd_key_costs_no_other_and_no_private_part_is_kept() -> None:
    whole = jwt.get_algorithm_by_name("RS256").to_jwk(private("rs-1"), as_dict=True)  # type: ignore[arg-type]
    (kept,) = read(msgspec.json.encode({"keys": [{"kty": 1}, whole, {"kty": "oct", "k": "x"}]}))
    assert kept.kty == "RSA"
    assert not {"d", "p", "q"} & set(msgspec.to_builtins(kept))


async def settle(ring: Keyring, now: float) -> None:
    """Let one look at the issuer come to its end."""
    ring.poll(now)
    future = ring._fetching
    assert future is not None
    await asyncio.wait([future])
    ring.poll(now)


async def test_keys_rotate_and_outlive_their_issuer(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    async with Issuer().serving() as made:
        asked = rules(jwks_file="", jwks_uri=made.uri)
        ring = Keyring(asked, tmp_path)
        known = Identities(PEOPLE, Auth(jwt=asked), Judge(asked, ring))
        first = ask(known, token())
        assert isinstance(first, Denial)
        assert (first.status, first.code, first.retry_after) == (503, "signing_keys_unknown", 1)
        now = clock.now()
        await settle(ring, now)
        assert isinstance(ask(known, token(), at=now), Grant)

        made.body = key_set("rs-2")  # an unannounced rotation
        assert isinstance(ask(known, token("rs-2"), at=now + 5), Denial)
        ring.poll(now + 5)
        assert made.asked == 1  # not again so soon, whoever asks
        waits = ask(known, token("rs-2", exp=now + 600), at=now + 11)
        assert isinstance(waits, Denial)
        assert waits.retry_after == 1
        await settle(ring, now + 11)
        assert isinstance(ask(known, token("rs-2", exp=now + 600), at=now + 11), Grant)
        gone = ask(known, token("rs-1"), at=now + 11)
        assert isinstance(gone, Denial)
        assert (gone.status, made.asked) == (401, 2)

        for status, body in ((500, b"down"), (200, b"{}"), (200, b"<html>")):
            made.status, made.body = status, body
            ring._due = 0.0
            await settle(ring, now + 400)
            assert NAME in ring.problem
            assert isinstance(ask(known, token("rs-2")), Grant)
    ring._due = 0.0
    await settle(ring, now + 400)  # nobody listens
    assert isinstance(ask(known, token("rs-2")), Grant)

    again = Keyring(asked, tmp_path)  # a restarted worker, and the issuer is down
    known = Identities(PEOPLE, Auth(jwt=asked), Judge(asked, again))
    assert isinstance(ask(known, token("rs-2")), Grant)


def test_a_file_of_keys_that_breaks_keeps_the_last_good_ones(tmp_path: Path) -> None:
    (tmp_path / "jwks.json").write_bytes(key_set("rs-1"))
    ring = Keyring(rules(), tmp_path)
    ring.poll(0.0)
    for spoil in (lambda path: path.write_bytes(b"{"), lambda path: path.unlink()):
        spoil(tmp_path / "jwks.json")
        ring.poll(0.0)
        assert "jwks.json" in ring.problem
        assert len(ring.keys) == 1
    (tmp_path / "jwks.json").write_bytes(key_set("rs-1", "es-1"))
    ring.poll(0.0)
    assert (ring.problem, len(ring.keys)) == ("", 2)
