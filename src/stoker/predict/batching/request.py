"""What goes into the machine and what comes out: requests, jobs, batches."""

from dataclasses import dataclass
from math import inf
from typing import NamedTuple, Protocol


class Request(NamedTuple):
    """One request. Keys are 0 where there is nothing to share.

    ``head_tokens`` of the prompt are the same in every request with this ``head`` (a system prompt, tools).
    ``shared_tokens`` of it, the head included, are what the same session has sent or got before. ``hidden_tokens`` of
    the output are thoughts that nobody sees. ``hashes``: of the whole blocks of prompt and answer, each over all before
    it, where the words themselves are known.
    """

    prompt_tokens: int
    output_tokens: int
    hidden_tokens: int = 0
    session: int = 0
    shared_tokens: int = 0
    head: int = 0
    head_tokens: int = 0
    priority: int = 0  # a lower number goes first
    client: int = 0  # whose turn it is, for the source of the load
    hashes: tuple[int, ...] = ()


class Batch(NamedTuple):
    """What one step computes: a token of each decoding sequence, and pieces of prompts."""

    decodes: int = 0
    context_tokens: float = 0.0  # of the decoding sequences together
    prefill_tokens: int = 0
    prefill_pairs: float = 0.0  # how many earlier tokens the pieces look at, summed over their tokens


class StepTime(Protocol):
    """How long a step takes: a table, a recording, or the planner's model."""

    def __call__(self, batch: Batch) -> float:
        """Seconds of this step; linear in ``context_tokens``, so that equal steps can be taken at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What an engine was told and what its card holds."""

    blocks: int
    block_tokens: int = 16
    batch_tokens: int = 8192  # of one step
    sequences: int = 256  # at once
    queue: int = 0  # how many may wait; 0: any number
    context_tokens: int = 0  # of a request; 0: as many as there are blocks for
    prefix_cache: bool = True


class Job:
    """A request on its way. Times are the caller's; ``inf``: not yet."""

    __slots__ = (
        "arrived",
        "base",
        "began",
        "born",
        "computed",
        "finish_tick",
        "finished",
        "first",
        "hit_tokens",
        "length",
        "made",
        "order",
        "own",
        "preempted",
        "request",
        "visible",
    )

    def __init__(self, request: Request, *, order: int, now: float) -> None:
        self.request = request
        self.order = order
        self.arrived = now
        self.began = self.first = self.visible = self.finished = inf
        self.length = request.prompt_tokens  # what a prefill has to compute: after a preemption also what was made
        self.computed = 0
        self.made = 0  # tokens that it had when its last prefill ended
        self.born = -1  # the tick at which it began to decode; -1: it does not
        self.finish_tick = -1
        self.own = 0  # blocks that are its alone
        self.base = 0  # blocks of a shared head that it stands on
        self.hit_tokens = 0
        self.preempted = 0

    @property
    def rank(self) -> tuple[int, int]:
        """Who goes first: priority, then arrival."""
        return (self.request.priority, self.order)

    @property
    def ttft(self) -> float:
        """Seconds to the first token."""
        return self.first - self.arrived

    @property
    def visible_ttft(self) -> float:
        """Seconds to the first token that a person sees."""
        return self.visible - self.arrived

    @property
    def tpot(self) -> float:
        """Seconds a token after the first; 0 where there is only one."""
        more = self.request.output_tokens - 1
        return (self.finished - self.first) / more if more else 0.0
