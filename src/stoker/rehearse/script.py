"""What the scripted engine answers, how fast, and which faults it has. A file of JSON, read again when it changes."""

import re
from typing import Final, Literal

import msgspec

from stoker.base.errors import Fault, Invalid, nearest
from stoker.base.json import JsonObject


class Script(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One behaviour. Counts of tokens are of the answer; None: that fault does not happen."""

    text: str = "The stoker feeds the fire, and the fire drives the engine."
    reasoning: str = ""  # thoughts before the answer
    preface: str = ""  # text before a tool call
    tokens: int = 0  # how long the answer is; 0: as long as the text
    calls: int = 1  # how many tool calls it makes when it is given tools; 0: it answers with text
    tool_names: tuple[str, ...] = ()  # tools to call, the first of them that the client offers; (): its first one
    tool_arguments: JsonObject = {}  # arguments to give where the tool's schema has them
    cached_tokens: int = 0  # how much of the prompt the usage reports as found in the cache
    tokens_per_second: float = 0.0  # 0: as fast as the machine can
    first_token_seconds: float = 0.0  # silence after the head of the answer
    head_seconds: float = 0.0  # silence before it, as of an engine that says its status with the first token
    comment_seconds: float = 0.0  # a comment this often in the silence before the first token, as llama.cpp does
    every: int = 1  # the faults below happen to every n-th request since this script is played
    times: int = 0  # and only to so many requests, the first ones; 0: to all
    rota: tuple[JsonObject, ...] = ()  # the n-th request is played by the n-th of these changes to the rest, in turn

    raw_tool_markup: bool = False  # as with no tool parser
    raw_reasoning_markup: bool = False  # as with no reasoning parser
    cut_after_tokens: int | None = None
    cut: Literal["clean", "reset"] = "clean"
    half_call: Literal["", "cut", "finished"] = ""  # a call stops in its arguments; "finished": as if it were whole
    tool_deltas: tuple[
        Literal["no_index", "name_repeated", "name_null", "empty_arguments", "finish_stop"], ...
    ] = ()  # ways in which engines write the pieces of a call wrongly
    empty: bool = False  # a whole answer without any content
    stall_after_tokens: int | None = None
    error_after_tokens: int | None = None  # an error frame inside the stream
    error_code: str = ""  # its code; empty: the dialect's word for a fault of the server
    crash_after_tokens: int | None = None
    status: int = 0  # refuse with this status
    overflow: Literal["", "vllm", "llama.cpp"] = ""  # refuse: the prompt is too long, in that engine's words
    retry_after_seconds: int = 0
    missing: tuple[Literal["finish", "usage", "done"], ...] = ()
    model: str = ""  # it lists and names another model than it was asked to serve
    hang: bool = False  # takes requests and never answers, while its health is good
    endless_thinking: bool = False  # it thinks until its limit is reached, and never says a word
    repeat_above_running: int | None = None  # with more requests than this at once it says one word again and again
    ignore_schema: bool = False  # it answers in plain text whatever structure was asked for
    poison_schema: str = ""  # a request whose schema has this in it ends the process
    health_status: int = 200
    health_seconds: float = 0.0  # it answers /health so late
    ready_after_seconds: float = 0.0  # until then requests get 503, although its health is good
    memory_error_after_seconds: float = 0.0  # then it runs out of memory, says so, and ends; 0: never
    memory_growth_bytes_per_second: float = 0.0  # what it leaks, up to a gigabyte
    crash_at_start: bool = False  # it ends before it listens, every time
    ignore_sigterm: bool = False


_BYTE: Final = re.compile(r"\(byte (\d+)\)")
_UNKNOWN: Final = re.compile(r"unknown field `([^`]*)`")
_NO_FAULTS: Final = (
    "text",
    "reasoning",
    "preface",
    "tokens",
    "calls",
    "tool_names",
    "tool_arguments",
    "cached_tokens",
    "tokens_per_second",
    "first_token_seconds",
    "head_seconds",
    "comment_seconds",
    "every",
    "times",
    "ignore_sigterm",
)


def parse(data: bytes, *, file: str = "") -> Script:
    """Read a script; raises Invalid naming the place and the nearest right name."""
    text = data.decode(errors="replace")
    try:
        script = msgspec.json.decode(data, type=Script)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Invalid(_fault(f"{error}", text, file)) from error
    for number, change in enumerate(script.rota):
        try:
            _changed(script, change)
        except msgspec.MsgspecError as error:
            raise Invalid(_fault(f"{error}", text, file, inside=f"rota[{number}]")) from error
    return script


def _fault(told: str, text: str, file: str, *, inside: str = "") -> Fault:
    """Say where in the file it is wrong, and which name was probably meant."""
    message, _, at = told.partition(" - at `$")
    byte = _BYTE.search(message)
    if byte is not None:
        return Fault(message=f"no valid script: {message}", file=file, line=text[: int(byte[1])].count("\n") + 1)
    unknown = _UNKNOWN.search(message)
    name = unknown[1] if unknown is not None else at.strip("`.").partition("[")[0].partition(".")[0]
    place = text.find(f'"{name}"') if name else -1
    return Fault(
        message="no such member of a script" if unknown is not None else f"no valid script: {message}",
        file=file,
        line=text[:place].count("\n") + 1 if place >= 0 else 0,
        field=".".join(part for part in (inside, name) if part),
        hint=nearest(name, Script.__struct_fields__) if unknown is not None else "",
    )


def calm(script: Script) -> Script:
    """The same script without its faults."""
    return msgspec.structs.replace(Script(), **{name: getattr(script, name) for name in _NO_FAULTS})


def _changed(script: Script, change: JsonObject) -> Script:
    return msgspec.convert({**msgspec.to_builtins(script), "rota": (), **change}, Script)


def told(script: Script, number: int) -> Script:
    """Give the script as it holds for the n-th request: with its faults, or without them."""
    if script.rota:
        return _changed(script, script.rota[(number - 1) % len(script.rota)])
    every = max(script.every, 1)
    struck = number % every == 0 and (not script.times or number // every <= script.times)
    return script if struck else calm(script)
