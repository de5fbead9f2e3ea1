"""A trace out of the ledger says what was asked, how long it was, and what of it had been sent before."""

from random import Random

import pytest

from stoker.base.json import JsonObject
from stoker.predict.traffic import recorded, trace
from stoker.predict.traffic.profile import find
from stoker.predict.traffic.sessions import session

BLOCK = 256  # tokens


def records(*, named: bool, reported: bool, sessions: int = 40) -> list[JsonObject]:
    """What a ledger would hold of agents: growing prompts, and a system prompt that all of them share."""
    rng, made = Random(7), []
    profile = find("agent")
    for number in range(sessions):
        texts: list[str] = []
        at = rng.uniform(0, 3600)
        for turn, each in enumerate(session(profile, rng)):
            at += 10 + each.gap_seconds
            shared = each.shared_tokens // BLOCK
            size = max(1, each.prompt_tokens // BLOCK)
            kept = texts[:shared] or [f"head{i}" for i in range(profile.head_tokens // BLOCK)][:size]
            texts = [*kept, *(f"{number}/{turn}/{i}" for i in range(size - len(kept)))]
            made.append(
                {
                    "at_seconds": at,
                    "dialect": "messages",
                    "outcome": "complete",
                    "prompt_tokens": each.prompt_tokens,
                    "output_tokens": each.output_tokens,
                    "cached_tokens": len(kept) * BLOCK if reported and turn else 0,
                    "session": f"s{number}" if named else "",
                    "blocks": list(texts),
                }
            )
            if turn > 12:
                break
    return made


def quantile(values: list[int], share: float) -> int:
    return sorted(values)[int(share * (len(values) - 1))]


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("reported", [True, False])
def test_lengths_and_reuse_come_back(*, named: bool, reported: bool) -> None:
    ledger = records(named=named, reported=reported)
    found = [arrival.request for arrival in trace.read(recorded.rows(ledger), file="t.jsonl")]

    assert len(found) == len(ledger)
    for share in (0.5, 0.9):
        want = quantile([int(str(row["prompt_tokens"])) for row in ledger], share)
        assert quantile([request.prompt_tokens for request in found], share) == pytest.approx(want, rel=0.05)
    if reported:
        total = sum(int(str(row["prompt_tokens"])) for row in ledger)
        cached = sum(int(str(row["cached_tokens"])) for row in ledger) / total
        assert sum(request.shared_tokens for request in found) / total == pytest.approx(cached, abs=0.03)
    assert len({request.session for request in found}) == 40 or not named
    sent: dict[int, int] = {}
    for request in found:  # what is shared was sent before, by the same session or as the head of all
        before = max(sent.get(request.session, 0), request.head_tokens)
        assert request.shared_tokens <= before + BLOCK
        sent[request.session] = max(sent.get(request.session, 0), request.prompt_tokens + request.output_tokens)
    assert {request.head for request in found} == {1}


def test_what_was_no_conversation_or_was_refused_is_left_out() -> None:
    good: JsonObject = {
        "at_seconds": 5.0, "dialect": "chat", "outcome": "complete", "prompt_tokens": 10, "output_tokens": 3,
    }  # fmt: skip
    others: list[JsonObject] = [
        {**good, "dialect": "embeddings"},
        {**good, "outcome": "rejected"},
        {**good, "outcome": "lost"},
        {**good, "output_tokens": 0},
        {**good, "prompt_tokens": 0},
    ]
    assert recorded.rows([*others, good]) == [
        {
            "at_seconds": 0.0,
            "prompt_tokens": 10,
            "output_tokens": 3,
            "session": "p1",
            "shared_tokens": 0,
            "head_tokens": 0,
        }
    ]
