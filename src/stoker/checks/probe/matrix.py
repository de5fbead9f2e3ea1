"""Who may get what? The whole door as one table: every sort of stranger at every path, and what he must be told.

1. Without one valid credential every path but the open ones says 401, in the words of its dialect, and that asking
   again does not help. The order matters: nobody learns which paths there are.
2. A valid credential opens what its caller may use. A model of others does not exist for it.
3. An engine's own paths and the metrics are closed to everybody: they show prompts of others, or change the engine.
4. What must stay open is open: health for load balancers, the clients' first look, a browser's preflight.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

import msgspec


class Who(StrEnum):
    """Who asks."""

    MISSING = "no key"
    GARBAGE = "garbage"
    UNSIGNED = "unsigned token"
    EXPIRED = "expired key"
    REVOKED = "revoked key"
    FORGED = "forged caller headers"
    OTHER = "other caller's key"
    LIAR = "other caller's key, forged headers"
    GOOD = "good key"


class Sort(StrEnum):
    """What sort of path it is."""

    CALL = "call"  # asks for the model
    LIST = "list"
    MODEL = "model"
    INSIDE = "inside"  # an engine's own, or ours behind the door
    HEALTH = "health"
    PREFLIGHT = "preflight"


STRANGERS: Final = (Who.MISSING, Who.GARBAGE, Who.UNSIGNED, Who.EXPIRED, Who.REVOKED, Who.FORGED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """One thing to ask for. ``body`` has a place for the model."""

    method: str
    path: str
    sort: Sort
    body: str = ""
    anthropic: bool = False  # in whose words errors come


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What must come back."""

    statuses: frozenset[int]
    error: bool = False  # a body in the dialect's words, and that asking again does not help
    hides: bool = False  # the model must not be named
    shows: bool = False  # the model must be named
    says: str = ""  # a word that must be in the message
    allows: str | None = None  # the origin that must be allowed; empty: none

    def __str__(self) -> str:
        """Write it for a table."""
        wanted = " or ".join(str(status) for status in sorted(self.statuses))
        more = [
            "in the dialect's words" if self.error else "",
            "without the model" if self.hides else "",
            "with the model" if self.shows else "",
            f"saying '{self.says}'" if self.says else "",
            f"allowing {self.allows or 'no origin'}" if self.allows is not None else "",
        ]
        return " ".join([wanted, *filter(None, more)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back, as far as it is judged."""

    status: int
    headers: dict[str, str]
    body: bytes


_TALK: Final = '{"model":"MODEL","max_tokens":1,"messages":[{"role":"user","content":"x"}]}'
_PROMPT: Final = '{"model":"MODEL","max_tokens":1,"prompt":"x"}'
_INPUT: Final = '{"model":"MODEL","input":"x"}'
_CALLS: Final = (
    ("/v1/chat/completions", _TALK),
    ("/v1/chat/completions?key=1", _TALK),
    ("/v1/completions", _PROMPT),
    ("/v1/embeddings", _INPUT),
    ("/v1/responses", _INPUT),
    ("/v1/messages", _TALK),
    ("/v1/messages?beta=true", _TALK),
    ("/v1/messages/count_tokens", _TALK),
    ("/v1/rerank", '{"model":"MODEL","query":"x","documents":["y"]}'),
)
# vLLM, SGLang, llama.cpp, TensorRT-LLM: what they open beside the dialects, and what we have behind the door.
_INSIDE: Final = (
    ("GET", ("/metrics", "/live", "/health", "/version", "/ping", "/load", "/docs", "/openapi.json", "/redoc")),
    (
        "GET",
        ("/props", "/slots", "/lora-adapters", "/server_info", "/get_server_info", "/get_model_info", "/model_info"),
    ),
    ("GET", ("/v1/internal", "/v1/internal/model/info", "/v1/keys", "/v1/resources/Caller", "/v1/status", "/v1/usage")),
    (
        "POST",
        ("/tokenize", "/detokenize", "/completion", "/infill", "/generate", "/v1/score", "/pooling", "/invocations"),
    ),
    ("POST", ("/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/load_lora_adapter", "/unload_lora_adapter")),
    ("POST", ("/props", "/slots/0?action=erase", "/sleep", "/wake_up", "/pause", "/collective_rpc", "/flush_cache")),
    ("POST", ("/reset_prefix_cache", "/update_weights_from_disk", "/start_profile", "/abort_request", "/v1/apply")),
    ("POST", ("/", "/healthz")),
    ("DELETE", ("/healthz", "/v1/models")),
    ("GET", ("//v1/models", "/v1/../metrics", "/%76%31/models", "/V1/models")),
)


def paths(opened: Sequence[str] = ()) -> Iterator[Path]:
    """List everything to ask for; ``opened``: what a rule of the gateway opens besides."""
    for path, body in _CALLS:
        yield Path(method="POST", path=path, sort=Sort.CALL, body=body, anthropic="/messages" in path)
    yield Path(method="GET", path="/v1/models", sort=Sort.LIST)
    yield Path(method="GET", path="/v1/models/MODEL", sort=Sort.MODEL)
    for method, several in _INSIDE:
        for path in several:
            sort = Sort.HEALTH if method == "GET" and path in opened else Sort.INSIDE
            yield Path(method=method, path=path, sort=sort, body="{}" if method == "POST" else "")
    for method in ("GET", "HEAD"):
        for path in ("/healthz", "/readyz", "/"):
            yield Path(method=method, path=path, sort=Sort.HEALTH)
    for path in ("/v1/chat/completions", "/v1/messages", "/v1/models", "/healthz", "/nowhere"):
        yield Path(method="OPTIONS", path=path, sort=Sort.PREFLIGHT)


_OK: Final = Expected(statuses=frozenset({200}))
_READY: Final = Expected(statuses=frozenset({200, 503}))  # 503: nothing serves
_STRANGER: Final = Expected(statuses=frozenset({401}), error=True, hides=True)
_SAYS: Final = {Who.EXPIRED: "expired", Who.REVOKED: "revoked"}
_CLOSED: Final = Expected(statuses=frozenset({403, 404, 405}), error=True)
# Whoever has a valid credential, by whether the model is open to it. None: not asked, for it would write an answer.
_KNOWN: Final[dict[tuple[Sort, bool], Expected | None]] = {
    (Sort.CALL, False): Expected(statuses=frozenset({403, 404}), error=True),
    (Sort.CALL, True): None,
    (Sort.LIST, False): Expected(statuses=frozenset({200}), hides=True),
    (Sort.LIST, True): Expected(statuses=frozenset({200}), shows=True),
    (Sort.MODEL, False): Expected(statuses=frozenset({404}), error=True),
    (Sort.MODEL, True): Expected(statuses=frozenset({200}), shows=True),
    (Sort.INSIDE, False): _CLOSED,
    (Sort.INSIDE, True): _CLOSED,
}


def expected(who: Who, path: Path, *, origin: str = "", allowed: bool = False) -> Expected | None:
    """Say what must come back; None: this pair is not asked. ``allowed``: the gateway lets pages of ``origin`` ask."""
    if path.sort is Sort.PREFLIGHT:
        return _preflight(who, origin, allowed=allowed)
    if path.sort is Sort.HEALTH:
        return _READY if path.path == "/readyz" else _OK
    if who in STRANGERS:
        return replace(_STRANGER, says=_SAYS.get(who, ""))
    return _KNOWN[path.sort, who is Who.GOOD]


def _preflight(who: Who, origin: str, *, allowed: bool) -> Expected | None:
    if who is not Who.MISSING:
        return None  # a browser sends no key with it
    if allowed:
        return Expected(statuses=frozenset({200, 204}), allows=origin)
    return Expected(statuses=frozenset({200, 204, 401}), allows="")


def fault(want: Expected, path: Path, answer: Answer, *, model: str) -> str:
    """Say what is wrong with an answer; empty: nothing."""
    if answer.status not in want.statuses:
        return f"{answer.status}"
    text = answer.body.decode("utf-8", "replace")
    if want.error and path.method != "HEAD":
        wrong = _wording(answer, anthropic=path.anthropic)
        if wrong:
            return f"{answer.status} {wrong}"
    if want.says and want.says not in text:
        return f"{answer.status} without '{want.says}': {text[:120]}"
    named = f'"{model}"' in text
    if model and ((want.hides and named) or (want.shows and not named)):
        return f"{answer.status} {'with' if named else 'without'} the model"
    given = answer.headers.get("access-control-allow-origin", "")
    if want.allows is not None and given != want.allows:
        return f"{answer.status} allowing {given or 'no origin'}"
    return ""


def _wording(answer: Answer, *, anthropic: bool) -> str:
    """Say what is wrong with the words of an error."""
    try:
        seen = msgspec.json.decode(answer.body, type=_Body)
    except msgspec.MsgspecError:
        return f"without an error in JSON: {answer.body[:80]!r}"
    if not seen.error.message:
        return "without a message"
    if anthropic != (seen.type == "error"):
        return f"in the words of {'OpenAI' if anthropic else 'Anthropic'}"
    if answer.headers.get("x-should-retry") != "false":
        return "without x-should-retry: false"
    if answer.status == 401 and not answer.headers.get("www-authenticate"):
        return "without www-authenticate"
    return ""


class _Error(msgspec.Struct, frozen=True):
    message: str


class _Body(msgspec.Struct, frozen=True):
    error: _Error
    type: str = ""
