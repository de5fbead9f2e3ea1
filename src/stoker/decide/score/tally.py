"""What do the checks come to: by class, at rest and under load, and which answers changed?"""

from collections.abc import Sequence

import msgspec

from stoker.decide.score.case import Case


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """One case asked once. ``right`` None: no answer came, so nothing was measured."""

    case: str
    kind: str
    right: bool | None
    why: str = ""  # nothing was measured


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One class of cases. Counts of answers."""

    kind: str
    rest_right: int
    rest_wrong: int
    load_right: int
    load_wrong: int
    not_measured: int

    @property
    def rest(self) -> float | None:
        """The share that was right at rest."""
        asked = self.rest_right + self.rest_wrong
        return self.rest_right / asked if asked else None

    @property
    def load(self) -> float | None:
        """And under load."""
        asked = self.load_right + self.load_wrong
        return self.load_right / asked if asked else None


def table(rest: Sequence[Mark], load: Sequence[Mark]) -> list[Row]:
    """Count by class."""
    kinds = dict.fromkeys(mark.kind for mark in (*rest, *load))
    return [
        Row(
            kind=kind,
            rest_right=sum(m.kind == kind and m.right is True for m in rest),
            rest_wrong=sum(m.kind == kind and m.right is False for m in rest),
            load_right=sum(m.kind == kind and m.right is True for m in load),
            load_wrong=sum(m.kind == kind and m.right is False for m in load),
            not_measured=sum(m.kind == kind and m.right is None for m in (*rest, *load)),
        )
        for kind in kinds
    ]


def changed(rest: Sequence[Mark], load: Sequence[Mark]) -> list[str]:
    """Name the cases that were right whenever they were asked at rest, and wrong more often than not under load."""
    found = []
    for case in dict.fromkeys(mark.case for mark in rest):
        before = [mark.right for mark in rest if mark.case == case and mark.right is not None]
        after = [mark.right for mark in load if mark.case == case and mark.right is not None]
        if before and all(before) and after and sum(after) * 2 < len(after):
            found.append(case)
    return found


def mark(case: Case, *, right: bool | None, why: str = "") -> Mark:
    """Note one answer."""
    return Mark(case=case.id, kind=case.kind, right=right, why=why)
