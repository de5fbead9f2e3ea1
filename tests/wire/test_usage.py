"""What an answer with several choices used, in the shapes in which engines report it."""

import msgspec
import pytest

from stoker.wire.follow import Follow
from stoker.wire.say.voices import OPENAI
from stoker.wire.scan.chat import Chat
from stoker.wire.scan.how import How


def _event(choices: list[dict[str, object]], prompt: int = 0, output: int = 0, cached: int = 0) -> bytes:
    chunk: dict[str, object] = {"object": "chat.completion.chunk", "choices": choices}
    if prompt:
        chunk["usage"] = {
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "total_tokens": prompt + output,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
    return b"data: " + msgspec.json.encode(chunk) + b"\n\n"


def _text(index: int) -> dict[str, object]:
    return {"index": index, "delta": {"content": "a"}, "finish_reason": None}


def _finish(index: int, text: str | None = None) -> dict[str, object]:
    body: dict[str, object] = {"delta": {}} if text is None else {"text": text}
    return {"index": index, "finish_reason": "length", **body}


_DONE = b"data: [DONE]\n\n"
_EACH_CHOICE = (
    _event([_text(1)]) + _event([_finish(1)]) + _event([], 32, 4, 31) + _event([_text(0)]) + _event([_finish(0)])
) + _event([], 32, 6, 31)
_EACH_PROMPT = _event([_finish(0, "a")], 5, 3, 1) + _event([_finish(1, "b")], 7, 2, 2)
_RUNNING = _event([_text(0)], 9, 1) + _event([_text(0)], 9, 2) + _event([_finish(0)], 9, 3) + _event([], 9, 3)
_CUT = _event([_text(0)], 9, 1) + _event([_text(0)], 9, 2)


@pytest.mark.parametrize(
    ("stream", "prompt", "cached", "output"),
    [
        pytest.param(_EACH_CHOICE, 32, 31, 10, id="a report for each choice, one prompt: llama.cpp chat"),
        pytest.param(_EACH_PROMPT, 12, 3, 5, id="a report with each finish, a prompt each: llama.cpp completions"),
        pytest.param(_RUNNING, 9, 0, 3, id="a running total and one report at the end: vLLM"),
        pytest.param(_CUT, 9, 0, 2, id="a running total that was cut"),
    ],
)
def test_counts_every_choice(stream: bytes, prompt: int, cached: int, output: int) -> None:
    watcher = Follow(Chat(How(strip_usage=True)), OPENAI)
    watcher.feed(stream + _DONE, 1.0)
    tokens = watcher.tokens()

    assert (tokens.prompt, tokens.cached, tokens.output, tokens.estimated) == (prompt, cached, output, False)


def test_an_answer_in_one_piece_says_what_all_its_choices_used() -> None:
    watcher = Follow(Chat(How(aggregate=True)), OPENAI)
    watcher.feed(_EACH_CHOICE + _DONE, 1.0)

    assert msgspec.json.decode(watcher.body())["usage"] == {
        "prompt_tokens": 32,
        "completion_tokens": 10,
        "total_tokens": 42,
        "prompt_tokens_details": {"cached_tokens": 31},
    }
