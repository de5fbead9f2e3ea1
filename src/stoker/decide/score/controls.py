"""Does the suite itself work? Answers that must be right and answers that must be wrong, tried before any model is."""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from stoker.decide.score.case import Call, Case, Reply
from stoker.decide.score.grade import right

_FOLLOWED: Final[dict[str, str]] = {
    "instruct-1": "spring",
    "instruct-2": "apple\npear\nplum",
    "instruct-3": "Rain falls on the roof all night.",
    "instruct-4": "However, it rained.",
    "instruct-5": "Rain falls on old roofs.",
    "instruct-6": "All is finished. DONE",
}
_BROKEN: Final[dict[str, str]] = {
    "instruct-1": "Spring",
    "instruct-2": "apple, pear and plum",
    "instruct-3": "Rain, rain, rain",
    "instruct-4": "It rained, however",
    "instruct-5": "Rain falls",
    "instruct-6": "DONE, I think",
}
_CHANCE: Final = 0.15  # what answers to other cases may hit by accident


def oracle(case: Case) -> Reply:
    """The right answer."""
    text = msgspec.json.encode(case.target_json).decode() if case.target_json is not None else case.target
    if case.kind == "instruct":
        text = _FOLLOWED[case.id]
    if case.kind == "tool_none":
        text = "The sea is wide."
    return Reply(
        text=text,
        calls=case.target_calls,
        finish=case.target_finish or ("tool_calls" if case.target_calls else "stop"),
        output_tokens=case.target_tokens or len(text.split()),
    )


def anti_oracle(case: Case) -> Reply:
    """An answer that looks like the right one and is wrong."""
    if case.kind == "instruct":
        return Reply(text=_BROKEN[case.id], finish="stop")
    if case.kind == "tool_none":
        return Reply(calls=(Call(name="send_mail", arguments={"to": "a", "subject": "b"}),), finish="tool_calls")
    if case.target_calls:
        first = case.target_calls[0]
        wrong = Call(name=first.name, arguments={**first.arguments, "more": 1})
        return Reply(calls=(wrong, *case.target_calls[1:]), finish="tool_calls")
    if case.kind == "json":
        return Reply(text='{"name": "Nobody"}', finish="stop")
    return Reply(text=f"{case.target} 1", finish="stop", output_tokens=case.target_tokens + 7)


def faults(cases: Sequence[Case]) -> list[str]:
    """Say what is wrong with the suite itself; nothing may be."""
    found = [f"{case.id}: the right answer is counted as wrong" for case in cases if not right(case, oracle(case))]
    found += [f"{case.id}: a wrong answer is counted as right" for case in cases if right(case, anti_oracle(case))]
    found += [f"{case.id}: no answer is counted as right" for case in cases if right(case, Reply())]
    share = shuffled(cases, oracle)
    if share > _CHANCE:
        found.append(f"answers to other cases are right in {share:.0%}: chance allows {_CHANCE:.0%}")
    return found


def shuffled(cases: Sequence[Case], answers: Callable[[Case], Reply]) -> float:
    """The share that is right when each answer is given to the next case of its kind, or of any."""
    hits = tried = 0
    for case in cases:
        others = [other for other in cases if other.kind == case.kind and other.id != case.id]
        for other in others:
            tried += 1
            hits += right(case, answers(other))
    return hits / tried if tried else 0.0
