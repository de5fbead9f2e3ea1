"""Ask the cases one after another: at rest, and beside a load as a few more of its clients."""

import threading
from collections.abc import Callable, Sequence
from typing import Self

from stoker.bench.load.target import Target
from stoker.bench.load.words import Book
from stoker.bench.suite.ask import CASES, Unanswered, ask
from stoker.decide.score import tally
from stoker.decide.score.case import Case
from stoker.decide.score.grade import right
from stoker.decide.score.tally import Mark

SHARE = 0.05  # of the load's clients


def at_rest(target: Target, book: Book, *, tell: Callable[[Mark], None] = lambda _mark: None) -> list[Mark]:
    """Ask each case once."""
    found = []
    for case in CASES:
        found.append(_mark(target, case, book, seed=0))
        tell(found[-1])
    return found


class Beside:
    """Clients in threads of their own, which ask in turn for as long as the block lasts."""

    def __init__(self, target: Target, book: Book, *, clients: int, cases: Sequence[Case] = CASES) -> None:
        self.marks: list[Mark] = []
        self._target = target
        self._book = book
        self._cases = cases
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._go, args=(i, clients), daemon=True) for i in range(clients)]

    def __enter__(self) -> Self:
        """Begin."""
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Let each finish its case."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _go(self, first: int, clients: int) -> None:
        turn = first
        while not self._stop.is_set():
            case = self._cases[turn % len(self._cases)]
            made = _mark(self._target, case, self._book, seed=turn)
            if not self._stop.is_set():  # an answer after the load's end was given at rest
                self.marks.append(made)
            turn += clients


def _mark(target: Target, case: Case, book: Book, *, seed: int) -> Mark:
    try:
        return tally.mark(case, right=right(case, ask(target, case, book, seed=seed)))
    except Unanswered as error:
        return tally.mark(case, right=None, why=str(error))
