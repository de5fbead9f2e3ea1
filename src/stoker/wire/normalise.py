"""Which parts of a prompt change although nothing was changed? They are taken out of the routing key, or of the prompt.

A client that writes its version, the time or a request id near the start of the prompt gives every turn a beginning of
its own: no replica has it cached, and no two gateways would route it alike. Five rules, each with a name that the
answer's header reports:

- ``marker``: lines in which a client reports itself (``x-anthropic-billing-header: …``);
- ``date``: dates and times, ISO and as written out in English;
- ``id``: UUIDs, and hexadecimal or ``req_``-like identifiers;
- ``tools``: the order of tools;
- ``keys``: the order of the keys of JSON objects.

All work on the JSON text as it came: a line end inside a string is the two characters backslash and n.
"""

import re
from typing import Any, Final

import msgspec

RULES: Final = ("marker", "date", "id", "tools", "keys")
TEXTUAL: Final = ("marker", "date", "id")
_LOOKED_AT_BYTES: Final = 8 << 10  # of a routing key's text: the expression below takes some 90 ns a byte
_START: Final = rb"(?:(?<=\\[nrt])|(?<![\w-]))"  # the n of a line end inside JSON is no part of the word after it
_MONTH: Final = rb"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}\.?"
_DAY: Final = rb"(?:(?:Mon|Tues?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?,? )?"
_TIME: Final = rb"\d{1,2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?: ?[AaPp][Mm]\b)?(?: ?(?:Z|UTC|GMT|[+-]\d{2}:?\d{2})\b)?"
_YEAR: Final = rb"(?:19|20)\d\d"
_DATE: Final = (
    _YEAR + rb"[-/]\d{1,2}[-/]\d{1,2}(?:[T ]" + _TIME + rb")?"
    rb"|"
    + _DAY
    + rb"(?:"
    + _MONTH
    + rb" \d{1,2}(?:st|nd|rd|th)?,? "
    + _YEAR
    + rb"|\d{1,2} "
    + _MONTH
    + rb",? "
    + _YEAR
    + rb")"
    rb"(?:,? (?:at )?" + _TIME + rb")?"
    rb"|\d{1,2}:\d{2}(?::\d{2}|(?= ?[AaPp][Mm]\b)|(?= ?UTC))" + rb"(?:\.\d{1,9})?(?: ?(?:[AaPp][Mm]|UTC|Z)\b)?"
)
_ID: Final = (
    rb"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"
    rb"|(?:req|request|sess|session|trace|run|thread|conv|msg|call|toolu|chatcmpl)[_-](?=[A-Za-z]*\d)[0-9A-Za-z]{8,}\b"
    rb"|(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{16,64}\b"
)
_VOLATILE: Final = re.compile(
    _START + rb"(?:(?P<marker>x-[a-z-]{3,40}-header: [^\"\\\n]{0,400}(?:\\n|\n)?)"
    rb"|(?P<date>" + _DATE + rb")|(?P<id>" + _ID + rb"))"
)
_STEADY: Final = {"marker": b"", "date": b"<date>", "id": b"<id>"}
_deterministic = msgspec.json.Encoder(order="sorted").encode


def text(data: bytes, rules: tuple[str, ...] = TEXTUAL) -> tuple[bytes, tuple[str, ...]]:
    """Take the volatile words out of JSON text; gives the text and the names of the rules that found something."""
    hit: dict[str, None] = {}

    def steady(found: re.Match[bytes]) -> bytes:
        rule = found.lastgroup or ""
        if rule not in rules:
            return found[0]
        hit[rule] = None
        return _STEADY[rule]

    return _VOLATILE.sub(steady, data), tuple(hit)


SAME: Final = bytes(48 if chr(code) in "0123456789abcdefABCDEF" else code for code in range(256))
_HINTS: Final = re.compile(rb"-header: | 20\d\d|[a-z]_(?=[A-Za-z]*\d)|\d\d:")


def steady(head: bytes) -> tuple[bytes, tuple[str, ...]]:
    """Make the text of a routing key from the head of a prompt; gives the text and the rules that found something.

    Every digit and hexadecimal letter becomes 0, which levels numbers, ISO times and UUIDs at a few bytes a nanosecond
    and leaves enough to tell prompts apart. Only where a word hints at more is the text looked at word by word.
    """
    hit: tuple[str, ...] = ()
    if (b"_" in head or b" 20" in head or b"-header: " in head) and _HINTS.search(head):
        start, hit = text(head[:_LOOKED_AT_BYTES])
        head = start + head[_LOOKED_AT_BYTES:]
    return head.translate(SAME), hit


def tools(data: bytes, rules: tuple[str, ...] = ("tools", "keys")) -> tuple[bytes, tuple[str, ...]]:
    """Put a list of tools into the order of their names, and their keys into theirs; names the rules that did."""
    if not data or data == b"null":
        return data, ()
    try:
        listed = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return data, ()
    if not isinstance(listed, list):
        return data, ()
    hit = []
    if "tools" in rules:
        ordered = sorted(listed, key=_name)
        if ordered != listed:
            hit.append("tools")
        listed = ordered
    out = (_deterministic if "keys" in rules else msgspec.json.encode)(listed)
    if "keys" in rules and out != msgspec.json.encode(listed):
        hit.append("keys")
    return out, tuple(hit)


def _name(tool: Any) -> str:
    if not isinstance(tool, dict):
        return ""
    function = tool.get("function")
    name = tool.get("name") or (function.get("name") if isinstance(function, dict) else "")
    return f"{name}" if name else f"{tool.get('type')}"


def keys(data: bytes) -> tuple[bytes, tuple[str, ...]]:
    """Put the keys of every object of JSON text into order."""
    try:
        value = msgspec.json.decode(data)
    except msgspec.DecodeError:  # the head of a long text is cut: it keeps its order
        return data, ()
    out = _deterministic(value)
    return out, ("keys",) if out != msgspec.json.encode(value) else ()


_SPOKEN_FIRST: Final = ("system", "developer")  # a tuple: what clients send may have no hash


def strip(body: bytes, rules: tuple[str, ...]) -> tuple[bytes, tuple[str, ...]]:
    """Take volatile parts out of a request itself: out of what stands before the conversation, and of its first words.

    Later turns and the results of tools keep their dates: there they mean something. Gives the body and the rules that
    found something; without a hit the body is the one that came.
    """
    try:
        request = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):  # in a member that nobody has read yet: the engine will say so
        return body, ()
    hit: dict[str, None] = {}
    textual = tuple(rule for rule in rules if rule in TEXTUAL)
    if textual and isinstance(request, dict):
        for name in ("system", "instructions", "prompt"):
            if name in request:
                request[name] = _steadied(request[name], textual, hit)
        _first_words(request.get("messages") or request.get("input"), textual, hit)
    out = body
    if isinstance(request, dict) and "tools" in rules and isinstance(request.get("tools"), list):
        ordered = sorted(request["tools"], key=_name)
        if ordered != request["tools"]:
            request["tools"], hit["tools"] = ordered, None
    plain = msgspec.json.encode(request)
    if "keys" in rules and (sorted_ := _deterministic(request)) != plain:
        hit["keys"], plain = None, sorted_
    if hit:
        out = plain
    return out, tuple(hit)


def _first_words(turns: Any, rules: tuple[str, ...], hit: dict[str, None]) -> None:
    for turn in turns if isinstance(turns, list) else ():
        if not isinstance(turn, dict):
            return
        role = turn.get("role")
        if role not in _SPOKEN_FIRST and role != "user":
            return
        turn["content"] = _steadied(turn.get("content"), rules, hit)
        if role == "user":
            return


def _steadied(content: Any, rules: tuple[str, ...], hit: dict[str, None]) -> Any:
    if isinstance(content, str):
        said, found = text(content.encode(), rules)
        hit.update(dict.fromkeys(found))
        return said.decode()
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            part["text"] = _steadied(part["text"], rules, hit)
    return content
