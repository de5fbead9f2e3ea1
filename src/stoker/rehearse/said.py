"""What is said in an answer, whatever the dialect. Each piece is one token of the scripted engine."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Text:
    """A piece that the user sees."""

    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    """A piece of the reasoning before the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call begins. ``index`` counts the calls of this answer, from 0."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Arguments:
    """A piece of the JSON arguments of a call."""

    index: int
    piece: str


Said: TypeAlias = Text | Thought | Call | Arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Tokens of one answer, as its usage reports them."""

    prompt: int
    cached: int = 0
    output: int = 0
    reasoning: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """How an answer ends: ``stop``, ``length``, ``tool_calls``; ``stop``: the sequence at which it stopped."""

    reason: str
    stop: str = ""


@dataclass(frozen=True, slots=True)
class Made:
    """A tool call with its arguments put together, as a client does."""

    id: str
    name: str
    arguments: str


def text_of(said: Sequence[Said]) -> str:
    """Put the visible text together."""
    return "".join(piece.text for piece in said if isinstance(piece, Text))


def thoughts_of(said: Sequence[Said]) -> str:
    """Put the reasoning together."""
    return "".join(piece.text for piece in said if isinstance(piece, Thought))


def calls_of(said: Sequence[Said]) -> tuple[Made, ...]:
    """Put the pieces of each call together."""
    begun = [piece for piece in said if isinstance(piece, Call)]
    pieces = [piece for piece in said if isinstance(piece, Arguments)]
    return tuple(
        Made(call.id, call.name, "".join(p.piece for p in pieces if p.index == call.index) or "{}") for call in begun
    )
