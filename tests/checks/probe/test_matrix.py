"""The table of expectations, and every way in which an answer can miss it."""

import pytest

from stoker.checks.probe.matrix import STRANGERS, Answer, Path, Sort, Who, expected, fault, paths

JSON = b'{"error":{"message":"The API key has expired.","type":"authentication_error"}}'
MESSAGES = b'{"type":"error","error":{"message":"no","type":"authentication_error"}}'
HEADERS = {"x-should-retry": "false", "www-authenticate": "Bearer"}


def path(sort: Sort, where: str = "/x", method: str = "GET", *, anthropic: bool = False) -> Path:
    return Path(method=method, path=where, sort=sort, anthropic=anthropic)


def answer(status: int, body: bytes = JSON, **headers: str) -> Answer:
    return Answer(status=status, headers={**HEADERS, **{k.replace("_", "-"): v for k, v in headers.items()}}, body=body)


def test_strangers_get_a_401_at_every_path_that_is_not_open() -> None:
    asked = list(paths())
    assert len(asked) > 70
    for each in asked:
        for who in STRANGERS:
            want = expected(who, each)
            if each.sort in (Sort.HEALTH, Sort.PREFLIGHT):
                assert want is None or 200 in want.statuses
            else:
                assert want is not None
                assert want.statuses == {401}


def test_what_is_inside_is_closed_to_everybody_unless_a_rule_opens_it() -> None:
    for each in paths():
        if each.sort is Sort.INSIDE:
            assert all(200 not in want.statuses for who in Who if (want := expected(who, each)) is not None)
    (metrics,) = [p for p in paths(("/metrics",)) if p.path == "/metrics"]
    assert metrics.sort is Sort.HEALTH


LIST, MODEL = path(Sort.LIST, "/v1/models"), path(Sort.MODEL, "/v1/models/MODEL")
CALL, TURN = path(Sort.CALL, method="POST"), path(Sort.CALL, "/v1/messages", "POST", anthropic=True)
LISTED = b'{"data":[{"id":"secret"}]}'
PAGE = "https://app.test"


@pytest.mark.parametrize(
    ("who", "where", "said", "wrong"),
    [
        pytest.param(Who.MISSING, CALL, answer(401), "", id="refused"),
        pytest.param(Who.MISSING, CALL, answer(200), "200", id="let in"),
        pytest.param(Who.MISSING, CALL, answer(404), "404", id="told which paths there are"),
        pytest.param(Who.MISSING, CALL, answer(500), "500", id="broken"),
        pytest.param(Who.EXPIRED, CALL, answer(401), "", id="told why"),
        pytest.param(Who.REVOKED, CALL, answer(401), "401 without 'revoked'", id="not told why"),
        pytest.param(Who.MISSING, CALL, answer(401, b"<html>"), "401 without an error in JSON", id="no JSON"),
        pytest.param(Who.MISSING, CALL, answer(401, b'{"error":{"message":""}}'), "401 without a message", id="mute"),
        pytest.param(Who.MISSING, CALL, answer(401, MESSAGES), "401 in the words of Anthropic", id="other words"),
        pytest.param(Who.MISSING, TURN, answer(401), "401 in the words of OpenAI", id="other words on messages"),
        pytest.param(Who.MISSING, TURN, answer(401, MESSAGES), "", id="its own words"),
        pytest.param(Who.MISSING, CALL, answer(401, x_should_retry=""), "401 without x-should-retry", id="asks again"),
        pytest.param(Who.MISSING, CALL, answer(401, www_authenticate=""), "401 without www-auth", id="no scheme"),
        pytest.param(Who.MISSING, CALL, answer(401, JSON[:-1] + b',"m":"secret"}'), "401 with the model", id="leak"),
        pytest.param(Who.OTHER, CALL, answer(404), "", id="no such model"),
        pytest.param(Who.OTHER, CALL, answer(200), "200", id="somebody else's model"),
        pytest.param(Who.LIAR, LIST, answer(200, b'{"data":[]}'), "", id="an empty list"),
        pytest.param(Who.LIAR, LIST, answer(200, LISTED), "200 with the model", id="a list of all"),
        pytest.param(Who.OTHER, MODEL, answer(200, LISTED), "200", id="the model itself"),
        pytest.param(Who.GOOD, LIST, answer(200, LISTED), "", id="one's own list"),
        pytest.param(Who.GOOD, LIST, answer(200, b'{"data":[]}'), "200 without the model", id="a list that lacks it"),
        pytest.param(Who.GOOD, path(Sort.INSIDE), answer(404), "", id="inside is closed"),
        pytest.param(Who.GOOD, path(Sort.INSIDE), answer(200), "200", id="inside is open"),
        pytest.param(Who.MISSING, path(Sort.HEALTH), answer(200, b""), "", id="health is open"),
        pytest.param(Who.GARBAGE, path(Sort.HEALTH), answer(401), "401", id="health is closed"),
        pytest.param(Who.MISSING, path(Sort.HEALTH, "/readyz"), answer(503, b"{}"), "", id="not ready"),
    ],
)
def test_fault(who: Who, where: Path, said: Answer, wrong: str) -> None:
    want = expected(who, where)
    assert want is not None
    found = fault(want, where, said, model="secret")
    assert found.startswith(wrong) if wrong else not found


@pytest.mark.parametrize(
    ("said", "allowed", "wrong"),
    [
        pytest.param(answer(200, b"", access_control_allow_origin=PAGE), True, "", id="allowed"),
        pytest.param(answer(200, b""), True, "200 allowing no origin", id="forgotten"),
        pytest.param(answer(401), True, "401", id="asked for a key"),
        pytest.param(answer(401), False, "", id="off"),
        pytest.param(answer(200, b"", access_control_allow_origin="*"), False, "200 allowing *", id="every page"),
        pytest.param(answer(200, b"", access_control_allow_origin=PAGE), False, "200 allowing https", id="echoed"),
    ],
)
def test_preflight(said: Answer, wrong: str, *, allowed: bool) -> None:
    where = path(Sort.PREFLIGHT, method="OPTIONS")
    assert expected(Who.GOOD, where, origin=PAGE, allowed=allowed) is None
    want = expected(Who.MISSING, where, origin=PAGE, allowed=allowed)
    assert want is not None
    assert fault(want, where, said, model="").startswith(wrong)
    assert bool(fault(want, where, said, model="")) is bool(wrong)
