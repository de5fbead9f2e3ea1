"""What does each request of a session say? The session's earlier bytes, unchanged, and something new behind them.

1. Where the model's answer is known by then, it is put back, as clients do: a cache then finds it. With the script's
   own words in its place the same bytes go to A and to B, whatever either answers.
2. A turn that shares less than it could (an edit, a compaction) keeps the beginning that it shares and says something
   else from there on; roles go on taking turns, since some templates refuse two of one kind in a row.
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from stoker.bench.load.render import Render
from stoker.bench.load.words import Book

_SLACK_TOKENS: Final = 64.0  # caches share whole blocks: as little as this is not cut off


class Ask(NamedTuple):
    """One request of a script."""

    session: int
    turn: int
    prompt_tokens: int
    output_tokens: int
    shared_tokens: int  # of the prompt, the head included, sent before
    head_tokens: int  # the same in all sessions
    gap_seconds: float = 0.0
    tool: bool = False  # it brings what a tool gave back
    client: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Tokens that the server's template adds, as it told itself."""

    request: float = 0.0
    message: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """How all talks of a run are written. ``salt``: no run finds what another left in the cache."""

    render: Render
    book: Book
    costs: Costs
    salt: str
    tools: bool = False
    head_last: bool = False  # the shared part behind what is new, as one should not write


@dataclass(slots=True)
class _Piece:
    """An answer and what came behind it: a person's words, or a tool's. ``texts``: names of texts with their tokens."""

    number: int
    texts: list[tuple[str, float]]
    answer: bytes = b""
    answer_tokens: float = 0.0
    tool: bool = False
    data: bytes = field(default=b"", repr=False)

    def tokens(self, costs: Costs) -> float:
        """What it takes of a prompt."""
        messages = 2 if self.answer else 1
        return self.answer_tokens + sum(tokens for _, tokens in self.texts) + messages * costs.message


class Talk:
    """One session."""

    __slots__ = ("_answer", "_count", "_cut", "_pieces", "_session", "_style", "_tokens", "_turn")

    def __init__(self, style: Style, session: int) -> None:
        self._style = style
        self._session = session
        self._pieces: list[_Piece] = []
        self._tokens = 0.0  # of the pieces
        self._count = 0
        self._turn = -1
        self._cut = False  # the last piece was shortened: what comes next goes on in it
        self._answer: tuple[bytes, float] = (b"", 0.0)  # what the next turn puts before itself

    def body(self, ask: Ask) -> bytes:
        """Write a request."""
        style = self._style
        head_tokens = min(ask.head_tokens, ask.prompt_tokens)
        head = style.book.text(f"{style.salt}/head", head_tokens) if head_tokens else b""
        overhead = style.costs.request + (style.costs.message if head else 0.0)
        self._keep(max(0.0, ask.shared_tokens - head_tokens - overhead))
        self._say(max(1.0, ask.prompt_tokens - head_tokens - overhead), ask)
        self._turn = ask.turn
        self._answer = (b"", float(ask.output_tokens))
        pieces = [piece.data for piece in self._pieces]
        if style.head_last and head:
            return style.render.body(b"", [*pieces, style.render.user(head)], most=ask.output_tokens, tools=style.tools)
        return style.render.body(head, pieces, most=ask.output_tokens, tools=style.tools)

    def heard(self, turn: int, answer: bytes, tokens: int) -> None:
        """Take the model's answer to a turn, unless the next one was sent before it came."""
        if turn == self._turn and answer:
            self._answer = (answer, float(tokens))

    def _keep(self, tokens: float) -> None:
        """Keep the beginning that is shared; the answer, which comes next, belongs to it."""
        self._cut = False
        over = self._tokens - tokens
        if over <= _SLACK_TOKENS and (tokens or not self._pieces):
            return
        self._answer = (b"", 0.0)
        costs = self._style.costs
        while self._pieces and over >= (size := self._pieces[-1].tokens(costs)) - 1:
            self._pieces.pop()
            over -= size
            self._tokens -= size
        self._cut = bool(self._pieces)
        if self._pieces:
            self._shorten(self._pieces[-1], over)

    def _shorten(self, piece: _Piece, over: float) -> None:
        """Take words off the end of a piece; the beginning of its text stays as it was."""
        while over > 0 and piece.texts:
            name, tokens = piece.texts.pop()
            kept = max(1.0 if not piece.texts else 0.0, tokens - over)
            if kept >= 1:
                piece.texts.append((name, kept))
            self._tokens -= tokens - kept
            over -= tokens - kept
            if kept:
                break

    def _say(self, wanted: float, ask: Ask) -> None:
        """Put the answer and something new behind what is there, so that the whole has the wanted length."""
        style, costs = self._style, self._style.costs
        name = f"{style.salt}/{self._session}/{self._count}"
        self._count += 1
        left = wanted - self._tokens
        if self._cut:
            piece = self._pieces[-1]
            piece.texts.append((name, max(1.0, left)))
            self._tokens += max(1.0, left)
        else:
            piece = self._next(name, left, tool=ask.tool)
            self._pieces.append(piece)
            self._tokens += piece.tokens(costs)
        piece.data = self._render(piece)

    def _next(self, name: str, left: float, *, tool: bool) -> _Piece:
        cost = self._style.costs.message
        answer, tokens = self._answer
        if not self._pieces or not tokens:
            return _Piece(number=self._count, texts=[(name, max(1.0, left - cost))])
        if not answer:
            tokens = min(tokens, max(1.0, left - 2 * cost - 1))
            answer = self._style.book.text(f"{name}/answer", tokens)
        new = max(1.0, left - tokens - 2 * cost)
        return _Piece(number=self._count, texts=[(name, new)], answer=answer, answer_tokens=tokens, tool=tool)

    def _render(self, piece: _Piece) -> bytes:
        render, book = self._style.render, self._style.book
        text = b" ".join([book.text(name, tokens) for name, tokens in piece.texts])
        if not piece.answer:
            return render.user(text)
        if piece.tool:
            return render.called(piece.answer, piece.number, text)
        return render.assistant(piece.answer) + b"," + render.user(text)
