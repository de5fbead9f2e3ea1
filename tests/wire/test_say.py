"""What we say ourselves: errors, models, signs of life."""

import anthropic.types
import msgspec
import openai.types
import pytest
from tests.wire.pair import begin

from stoker.wire import errors
from stoker.wire.say import anthropic_errors, models, responses_errors


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (418, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (502, "api_error"),
        (503, "overloaded_error"),
        (504, "timeout_error"),
    ],
)
def test_errors_as_anthropic_clients_read_them(status: int, kind: str) -> None:
    body = msgspec.json.decode(anthropic_errors.body(status, "no", request_id="req_1"))
    assert body == {"type": "error", "error": {"type": kind, "message": "no"}, "request_id": "req_1"}


def test_a_parameter_is_named_once() -> None:
    said = msgspec.json.decode(anthropic_errors.body(400, "is too large", param="max_tokens", code="x"))
    assert said["error"]["message"] == "max_tokens: is too large"


LLAMACPP = b'{"error":{"code":400,"message":"too long","type":"exceed_context_size_error"}}'


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (LLAMACPP, "too long"),
        (b'{"detail":"Not Found"}', "Not Found"),
        (b'{"message":"plain"}', "plain"),
        (b'{"error":{"odd":1}}', '{"odd":1}'),
        (b"<html>", "<html>"),
        (b"", "the engine answered 400"),
    ],
)
def test_engine_errors_get_the_shape(body: bytes, message: str) -> None:
    shaped = msgspec.json.decode(anthropic_errors.in_shape(400, body, request_id="r"))
    assert (shaped["error"]["message"], shaped["request_id"]) == (message, "r")
    own = anthropic_errors.body(400, "as it is")
    assert anthropic_errors.in_shape(400, own) == own
    assert responses_errors.in_shape(400, LLAMACPP) == LLAMACPP


def test_frames_are_one_event() -> None:
    pretty = b'{\n  "error": {"message": "m"}\n}'
    for frame in (
        errors.frame_of(pretty),
        anthropic_errors.frame_of(pretty),
        responses_errors.frame_of(pretty),
        anthropic_errors.frame("m", kind="upstream_error", code="x"),
        responses_errors.frame("m", kind="x", code="context_length_exceeded"),
    ):
        assert frame.endswith(b"\n\n")
        assert frame.count(b"\n\n") == 1
        assert frame.count(b"data: ") == 1
    assert b'"api_error"' in anthropic_errors.frame("m", kind="upstream_error", code="x")
    assert b'"overloaded_error"' in anthropic_errors.frame("m", kind="overloaded_error", code="x")


@pytest.mark.parametrize(
    ("code", "want"),
    [
        ("context_length_exceeded", "context_length_exceeded"),
        ("upstream_truncated", "server_error"),
        (502, "server_error"),
    ],
)
def test_codex_gives_up_only_where_nothing_can_heal(code: str | int, want: str) -> None:
    frame = begin("responses", "chat").failure("no", kind="x", code=code)
    first, last = frame.rstrip().split(b"\n\n")
    event = msgspec.json.decode(last.partition(b"data: ")[2])

    assert first.startswith(b"event: response.created\n")
    assert event["response"]["status"] == "failed"
    assert event["response"]["error"] == {"code": want, "message": "no"}
    if want == "server_error":  # the other is Codex's word; the SDK's type lacks it, and its stream does not mind
        assert openai.types.responses.Response.model_validate(event["response"]).id == "resp_w-1"


def test_model_lists_in_both_shapes() -> None:
    names = ["a", 'b"']
    ours = msgspec.json.decode(models.openai_models(names, created=5))
    theirs = msgspec.json.decode(models.anthropic_models(names, created=5))

    assert [openai.types.Model.model_validate(model).id for model in ours["data"]] == names
    assert [anthropic.types.ModelInfo.model_validate(model).id for model in theirs["data"]] == names
    assert theirs["data"][0]["created_at"] == "1970-01-01T00:00:05Z"
    assert (theirs["first_id"], theirs["last_id"], theirs["has_more"]) == ("a", 'b"', False)
    assert msgspec.json.decode(models.anthropic_models([], created=5))["first_id"] is None
    assert models.token_count(7) == b'{"input_tokens":7}'


def test_signs_of_life() -> None:
    assert begin("chat", "messages").keep_alive().startswith(b":")
    assert begin("messages", "chat").keep_alive().startswith(b"event: ping\n")
    follow = begin("responses", "messages")
    events = [follow.keep_alive() for _ in range(3)]
    assert [event.partition(b"\n")[0] for event in events] == [
        b"event: response.created",
        b"event: response.in_progress",
        b"event: response.in_progress",
    ]
    assert [msgspec.json.decode(event.partition(b"data: ")[2])["sequence_number"] for event in events] == [0, 1, 2]
