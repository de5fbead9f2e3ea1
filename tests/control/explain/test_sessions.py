"""Sessions in the ledger: listed, found by their beginning, and explained."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

from stoker.base.errors import NotFound
from stoker.control.desk import Desk
from stoker.control.explain.sessions import listing, one
from stoker.drivers.ledger.sqlite import Ledger
from stoker.drivers.spool import Spool
from stoker.facts.record import Record, Tokens
from stoker.wire.prompt import blocks

BASE = b"abcdefgh" * 2000


def record(number: int, session: str, prompt: bytes, *, cached: int = 0, dialect: str = "chat") -> Record:
    return Record(
        id=f"w-{number}",
        at=1000.0 + number,
        caller="alice",
        service="default/tiny",
        endpoint="default/tiny-0",
        incarnation="tiny-0-1",
        dialect=dialect,
        session=session,
        turn=number,
        blocks=blocks(prompt, salt=b"s"),
        prompt_bytes=len(prompt),
        system_bytes=3000,
        tokens=Tokens(prompt=len(prompt) // 4, cached=cached, output=5),
    )


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    spool = Spool(tmp_path / "spool", "w")
    changed = BASE[:2000] + b"!" + BASE[2001:]
    for made in (
        record(1, "aaaa1111", BASE[:8000]),
        record(2, "bbbb2222", BASE[:4000]),
        record(3, "aaaa1111", BASE[:12000], cached=1900),
        record(4, "aaaa1111", b"title", dialect="messages"),  # the helper model of an agent has its own line
        record(5, "aaaa1111", changed, cached=400),
        record(6, "", BASE[:4000]),
        record(7, "aaaa9999", BASE[:4000]),
        msgspec.structs.replace(record(0, "dddd3333", BASE[:4000]), endpoint=""),  # refused: no engine saw it
    ):
        spool.append(made)
    spool.close()
    layout = SimpleNamespace(spool=tmp_path / "spool")
    return cast("Desk", SimpleNamespace(ledger=Ledger(tmp_path / "ledger.db"), layout=layout))


def test_sessions_are_listed_with_what_their_cache_was_worth(desk: Desk) -> None:
    rows = asyncio.run(listing(desk, since=0.0, limit=10))["items"]
    found = {row["session"]: row for row in cast("list[dict[str, object]]", rows)}

    assert list(found) == ["aaaa9999", "aaaa1111", "bbbb2222"]
    assert (found["aaaa1111"]["requests"], found["aaaa1111"]["broken"]) == (4, 1)
    assert found["aaaa1111"]["cached_tokens"] == 2300
    assert asyncio.run(listing(desk, since=1002.5, limit=1))["items"] == [found["aaaa9999"]]


def test_a_session_is_explained_turn_by_turn(desk: Desk) -> None:
    page = asyncio.run(one(desk, "aaaa1"))
    rows = cast("list[dict[str, object]]", page["items"])

    assert page["session"] == "aaaa1111"
    assert [row["verdict"] for row in rows] == ["First", "Continued", "First", "PromptChanged"]
    last = rows[-1]
    assert (last["block"], last["where"], last["from_bytes"], last["to_bytes"]) == (1, "system", 1024, 2048)
    assert last["again_tokens"] == round(3000 * (1 - 1024 / 12000))
    assert "normalise" in str(last["advice"])


@pytest.mark.parametrize(("name", "says"), [("cccc", "no session begins"), ("aaaa", "beginning of 2 sessions")])
def test_a_name_must_name_one(desk: Desk, name: str, says: str) -> None:
    with pytest.raises(NotFound, match=says):
        asyncio.run(one(desk, name))
