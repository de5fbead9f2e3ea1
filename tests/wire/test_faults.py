"""Each engine's way of saying "too long" and "I cannot", and what clients are told."""

import msgspec
import pytest

from stoker.wire.faults import Fault, Kind, overflow_words, recognise


def said(text: str) -> bytes:
    return msgspec.json.encode({"error": {"message": text, "type": "BadRequestError", "code": 400}})


@pytest.mark.parametrize(
    ("status", "body", "numbers"),
    [
        (
            400,
            (
                b'{"error":{"code":400,"message":"request exceeds","type":"exceed_context_size_error",'
                b'"n_prompt_tokens":6031,"n_ctx":4096}}'
            ),
            (6031, 0, 4096),
        ),
        (
            400,
            said(
                "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4100 in the "
                "messages, 900 in the completion). Please reduce the length of the messages or completion."
            ),
            (4100, 900, 4096),
        ),
        (
            400,
            said(
                "'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum context length is "
                "16384 tokens and your request has 1200 input tokens (32000 > 16384 - 1200)."
            ),
            (1200, 32000, 16384),
        ),
        (
            400,
            said(
                "You passed 6001 input tokens and requested 16 output tokens. However, the model's context length is "
                "only 4096 tokens, resulting in a maximum input length of 4080 tokens."
            ),
            (6001, 16, 4096),
        ),
        (
            400,
            said("The decoder prompt (length 6000) is longer than the maximum model length of 4096."),
            (6000, 0, 4096),
        ),
        (
            400,
            said("The input (6000 tokens) is longer than the model's context length (4096 tokens)."),
            (6000, 0, 4096),
        ),
        (
            400,
            said(
                "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a "
                "total of 5000 tokens: 4000 tokens from the input messages and 1000 tokens for the completion."
            ),
            (4000, 1000, 4096),
        ),
        (
            500,
            said(
                "The sum of prompt length (6000.0), query length (0) and max_tokens (100) should not exceed "
                "max_seq_len (4096)"
            ),
            (6000, 100, 4096),
        ),
        (
            400,
            b'{"type":"error","error":{"message":"prompt is too long: 210000 tokens > 200000 maximum"}}',
            (210000, 0, 200000),
        ),
        (400, b'{"error":{"message":"too long","code":"context_length_exceeded"}}', (0, 0, 0)),
        (
            400,
            b'{"error":{"message":"The maximum context length is 4096 tokens; the prompt has at least 4983."}}',
            (4983, 0, 4096),
        ),
    ],
)
def test_every_way_to_say_too_long(status: int, body: bytes, numbers: tuple[int, int, int]) -> None:
    fault = recognise(status, body)

    assert (fault.kind, fault.status) == (Kind.OVERFLOW, 400)
    assert (fault.prompt, fault.output, fault.context) == numbers


@pytest.mark.parametrize(
    ("status", "text", "kind", "told"),
    [
        (400, "temperature must be at most 2", Kind.REQUEST, 400),
        (422, "field required", Kind.REQUEST, 422),
        (500, "unsupported tool type: web_search", Kind.REQUEST, 400),
        (500, "image input is not supported - hint: you may need to provide the mmproj", Kind.REQUEST, 400),
        (500, "CUDA error: an illegal memory access was encountered", Kind.ENGINE, 500),
        (500, "", Kind.ENGINE, 500),
        (502, "bad gateway", Kind.ENGINE, 502),
        (401, "Invalid API Key", Kind.CREDENTIAL, 502),
        (403, "forbidden", Kind.CREDENTIAL, 502),
        (404, "The model `x` does not exist.", Kind.NOT_FOUND, 502),
        (429, "slow down", Kind.BUSY, 429),
        (503, "Loading model", Kind.BUSY, 503),
        (529, "overloaded", Kind.BUSY, 503),
    ],
)
def test_other_refusals(status: int, text: str, kind: Kind, told: int) -> None:
    fault = recognise(status, said(text))

    assert (fault.kind, fault.status) == (kind, told)


def overflow(prompt: int, output: int, context: int) -> Fault:
    return Fault(kind=Kind.OVERFLOW, status=400, prompt=prompt, output=output, context=context)


def test_the_words_that_clients_act_on() -> None:
    assert overflow_words("messages", overflow(1200, 32000, 16384)) == (
        "input length and `max_tokens` exceed context limit: 1200 + 32000 > 16384, decrease input length or "
        "`max_tokens` and try again"
    )
    assert (
        overflow_words("messages", overflow(20000, 32000, 16384)) == "prompt is too long: 20000 tokens > 16384 maximum"
    )
    assert overflow_words("messages", overflow(6031, 0, 4096)) == "prompt is too long: 6031 tokens > 4096 maximum"
    assert "maximum context length is 4096 tokens" in overflow_words("chat", overflow(4100, 900, 4096))
    assert overflow_words("chat", overflow(0, 0, 0)).endswith("Shorten it.")


def test_what_we_say_ourselves_is_recognised_behind_another_gateway() -> None:
    for numbers in ((1200, 32000, 16384), (20000, 0, 16384)):
        words = overflow_words("messages", overflow(*numbers))
        again = recognise(400, said(words))
        assert (again.prompt, again.output, again.context) == numbers
