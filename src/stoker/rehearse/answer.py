"""One request and one script make a sequence of timed events; the server only carries them out. Pure.

The time between tokens is an event of its own, so that a batching model of time can take its place later.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from stoker.base.json import JsonObject
from stoker.rehearse.compose import Composition, Parsers, compose
from stoker.rehearse.dialects.base import Refusal, Subject, Writer, encode, refusal_body
from stoker.rehearse.dialects.chat import Chat
from stoker.rehearse.dialects.messages import Messages
from stoker.rehearse.dialects.responses import Responses
from stoker.rehearse.dialects.single import single
from stoker.rehearse.event import Crash, Cut, End, Event, Head, Send, Wait
from stoker.rehearse.request import Request
from stoker.rehearse.said import Close, Counts, Thought
from stoker.rehearse.script import Script, told


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """What the engine was started with."""

    model: str
    context_tokens: int = 0
    tool_parser: bool = False
    reasoning_parser: bool = False

    @property
    def parsers(self) -> Parsers:
        """Which markup it parses."""
        return Parsers(tool=self.tool_parser, reasoning=self.reasoning_parser)


def answer(request: Request, script: Script, engine: Engine, composition: Composition | None = None) -> Iterator[Event]:
    """Write the events of one answer; ``composition``: what is said, where that is known already."""
    script = told(script, request.turn or request.number)
    if script.hang:
        yield Wait(None)
        return
    if script.head_seconds:
        yield Wait(script.head_seconds)
    refusal = _refusal(request, script, engine)
    if refusal is not None:
        yield from _refused(request, refusal, retry_after=script.retry_after_seconds)
        return
    name = script.model or engine.model
    at_once = single(request, model=name, context_tokens=engine.context_tokens)
    if at_once is not None:
        yield from _whole(at_once)
        return
    subject = Subject(request=request, script=script, model=name)
    composition = composition or compose(request, script, engine.parsers)
    if script.half_call == "cut":
        subject = _cut_behind(subject, composition)
    writer = _writer(subject)
    yield from (_stream if request.stream else _aggregate)(subject, writer, composition)


def composed(request: Request, script: Script, engine: Engine) -> Composition | None:
    """Say what must be computed for an answer; None: nothing is, or it never comes."""
    script = told(script, request.turn or request.number)
    if script.hang or _refusal(request, script, engine) is not None:
        return None
    if request.dialect in ("embeddings", "rerank"):
        return Composition((), Close(reason="stop"))  # the prompt is computed, and nothing is said
    if single(request, model="", context_tokens=engine.context_tokens) is not None:
        return None
    return compose(request, script, engine.parsers)


def _writer(subject: Subject) -> Writer:
    match subject.request.dialect:
        case "messages":
            return Messages(subject)
        case "responses":
            return Responses(subject)
        case _:
            return Chat(subject)


def _cut_behind(subject: Subject, composition: Composition) -> Subject:
    """Let the cut come behind the half call, wherever that is."""
    script = msgspec.structs.replace(subject.script, cut_after_tokens=len(composition.said))
    return Subject(request=subject.request, script=script, model=subject.model)


def _refusal(request: Request, script: Script, engine: Engine) -> Refusal | None:
    """Say why this request gets no answer, in the words of an engine."""
    if script.status:
        return Refusal(status=script.status, message="scripted refusal")
    prompt = request.prompt_tokens
    context = engine.context_tokens or max(prompt - 1, 0)  # without a limit only a script refuses, and needs a number
    if script.overflow == "llama.cpp":
        message = f"request ({prompt} tokens) exceeds the available context size ({context} tokens), try increasing it"
        extra = (("n_prompt_tokens", prompt), ("n_ctx", context))
        return Refusal(status=400, message=message, kind="exceed_context_size_error", extra=extra)
    if script.overflow or (engine.context_tokens and prompt > context):
        message = (
            f"This model's maximum context length is {context} tokens. However, your prompt contains {prompt} input "
            "tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input "
            f"prompt. (parameter=input_tokens, value={prompt})"
        )
        return Refusal(status=400, message=message, kind="BadRequestError", param="input_tokens")
    return None


def _refused(request: Request, refusal: Refusal, *, retry_after: int) -> Iterator[Event]:
    data = refusal_body(request.dialect, refusal)
    yield Head(refusal.status, len(data), retry_after)
    yield Send(data)
    yield End("error")


def _whole(body: JsonObject) -> Iterator[Event]:
    data = encode(body)
    yield Head(200, len(data))
    yield Send(data)
    yield End("stop")


def _counts(subject: Subject, composition: Composition, output: int) -> Counts:
    prompt = subject.request.prompt_tokens
    thoughts = sum(isinstance(piece, Thought) for piece in composition.said[:output])
    return Counts(prompt=prompt, cached=min(subject.script.cached_tokens, prompt), output=output, reasoning=thoughts)


def _stream(subject: Subject, writer: Writer, composition: Composition) -> Iterator[Event]:
    script = subject.script
    yield Head(200)
    begin = writer.start(_counts(subject, composition, 0))
    if subject.request.dialect == "responses":
        yield Send(begin)
        yield from _silence(script)
    else:  # engines open these with their first token: the role and message_start come after the prompt is read
        yield from _silence(script)
        yield Send(begin)
    for sent, piece in enumerate(composition.said):
        fault = _fault(script, sent, writer)
        if fault is not None:
            yield from fault
            return
        yield Send(writer.said(piece), 1)
        yield Wait(1 / script.tokens_per_second if script.tokens_per_second else 0.0)
    total = len(composition.said)
    fault = _fault(script, total, writer)
    if fault is not None:
        yield from fault
        return
    for frame in writer.close(composition.close, _counts(subject, composition, total)):
        yield Send(frame)
    yield End(composition.close.reason)


def _silence(script: Script) -> Iterator[Event]:
    """Wait for the first token, with comments in between where the script asks for them."""
    left, pause = script.first_token_seconds, script.comment_seconds
    while pause and left > pause:
        yield Wait(pause)
        yield Send(b":\n\n")
        left -= pause
    yield Wait(left)


def _fault(script: Script, sent: int, writer: Writer) -> list[Event] | None:
    """Tell what goes wrong once this many tokens have been sent."""
    if script.crash_after_tokens is not None and sent >= script.crash_after_tokens:
        return [Crash()]
    if script.cut_after_tokens is not None and sent >= script.cut_after_tokens:
        # A clean cut looks like an ordinary end of the body: no terminator of the dialect, but one of HTTP.
        return [Cut(reset=True)] if script.cut == "reset" else [End("abort")]
    if script.stall_after_tokens is not None and sent >= script.stall_after_tokens:
        return [Wait(None)]
    if script.error_after_tokens is not None and sent >= script.error_after_tokens:
        return [Send(writer.error("scripted error")), End("error")]
    return None


def _aggregate(subject: Subject, writer: Writer, composition: Composition) -> Iterator[Event]:
    script, total = subject.script, len(composition.said)
    pace = total / script.tokens_per_second if script.tokens_per_second else 0.0
    yield Wait(script.first_token_seconds + pace)
    fault = _fault(script, total, writer)
    if fault is None:
        data = encode(writer.whole(composition.said, composition.close, _counts(subject, composition, total)))
        yield Head(200, len(data))
        yield Send(data, total)
        yield End(composition.close.reason)
    elif isinstance(fault[0], Cut | End):
        data = encode(writer.whole(composition.said, composition.close, _counts(subject, composition, total)))
        yield Head(200, len(data))
        yield Send(data[: len(data) // 2])
        yield Cut(reset=isinstance(fault[0], Cut))
    elif isinstance(fault[0], Send):
        yield from _refused(
            subject.request, Refusal(status=500, message="scripted error", kind="InternalServerError"), retry_after=0
        )
    else:
        yield from fault
