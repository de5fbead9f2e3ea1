"""Every fault of the rehearsal engine, how to ask for it, and what a platform should do about it."""

from typing import Final, NamedTuple


class Known(NamedTuple):
    """One fault. ``members``: of the script's file."""

    name: str
    members: str
    duty: str


FAULTS: Final = (
    Known(
        "refuses",
        '"status": 429 or 503',
        "pass the status on with a bounded retry-after; try a neighbour before the first token",
    ),
    Known(
        "slow first token",
        '"first_token_seconds": 60',
        "show the client that it lives; send the request once, not again",
    ),
    Known("stalls", '"stall_after_tokens": 8', "end it by the idle limit with an error frame; count a timeout"),
    Known(
        "cut, cleanly",
        '"cut_after_tokens": 8',
        "an error frame, never `stop`: the end of the body is no end of the answer",
    ),
    Known(
        "cut, by a reset",
        '"cut_after_tokens": 8, "cut": "reset"',
        "the same; try elsewhere only while nothing was sent on",
    ),
    Known("no finish reason", '"missing": ["finish"]', "count it as truncated"),
    Known("no usage", '"missing": ["usage"]', "count by events and mark the record as estimated"),
    Known("wrong tool deltas", '"tool_deltas": ["no_index", "name_repeated"]', "repair what is plain, flag the rest"),
    Known("raw tool markup", '"raw_tool_markup": true', "flag the answer; tell which parser the deployment lacks"),
    Known("empty answer", '"empty": true', "pass it on, flag it, and watch its share"),
    Known(
        "endless thinking",
        '"endless_thinking": true',
        "end it by the output cap; keep hidden tokens apart from visible ones",
    ),
    Known(
        "repeats itself under load",
        '"repeat_above_running": 4',
        "compare checks under load with checks at rest; take it out of rotation",
    ),
    Known(
        "out of memory", '"memory_error_after_seconds": 30', "restart with back-off, say why, propose the safer setting"
    ),
    Known(
        "memory grows",
        '"memory_growth_bytes_per_second": 1e7',
        "see the trend before the end; drain and restart in time",
    ),
    Known("hangs, healthy", '"hang": true', "ask for one token, not for /health; eject, then restart"),
    Known("slow health", '"health_seconds": 20', "a slow answer is no dead engine while tokens flow"),
    Known("crash loop", '"crash_at_start": true', "back off, keep the last lines of the log, serve from the others"),
    Known("not routable for a while", '"ready_after_seconds": 60', "route only when a generation has succeeded"),
    Known(
        "wrong model name", '"model": "other"', "compare what it lists with what was ordered, before it gets traffic"
    ),
    Known("schema ignored", '"ignore_schema": true', "check structured answers in the probes; tell the client"),
    Known(
        "crash on a poison schema",
        '"poison_schema": "pattern"',
        "refuse the third time what has killed an engine twice",
    ),
)
