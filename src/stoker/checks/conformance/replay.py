"""Recorded requests of real clients, sent again: each must be taken as it is."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from stoker.base.json import Json
from stoker.checks.conformance import messages, responses
from stoker.checks.conformance.chat import called
from stoker.checks.conformance.events import Stream, stream_of
from stoker.checks.conformance.probe import Finding, Probe, Run, Talk, judged, passed
from stoker.checks.conformance.shapes import Shape, shapes


def _chat(stream: Stream) -> list[str]:
    return called(stream)[0]


_JUDGES: Final[Mapping[str, Callable[[Stream], Sequence[str]]]] = {
    "chat": _chat,
    "messages": messages.stream_problems,
    "responses": responses.stream_problems,
}
_FIX: Final = "400 for its length: spec.engine.contextTokens must hold the client's own prompt"


def _run(shape: Shape) -> Run:
    def run(talk: Talk) -> Finding:
        body = shape.filled(talk.model)
        limit = "max_output_tokens" if shape.surface == "responses" else "max_tokens"
        asked: Json = 32 if shape.surface == "responses" else body.get(limit, 32)
        got = talk.post(shape.path, {**body, limit: asked}, headers=messages.VERSION)
        if got.status == 200 and body.get("stream") is not True:
            return passed(f"{shape.body_bytes} bytes, 200")
        return judged(
            _JUDGES[shape.surface](stream_of(got)),
            f"{shape.body_bytes} bytes, a whole stream",
            fix=_FIX if got.status == 400 else "",
        )

    return run


def probes() -> tuple[Probe, ...]:
    """Make a probe of each shape."""
    found: dict[str, int] = {}
    made = []
    for shape in shapes():
        if shape.surface not in _JUDGES:
            continue
        found[shape.client] = found.get(shape.client, 0) + 1
        name = f"{shape.surface}.replay-{shape.client}-{found[shape.client]}"
        made.append(Probe(name=name, what=f"a request as {shape.client} sends it", run=_run(shape)))
    return tuple(made)
