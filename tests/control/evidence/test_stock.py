"""How model files stand: here, refused, coming, failed; and when a failed fetch is tried again."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.models import tiny

from stoker.base import clock
from stoker.base.errors import Driver, Invalid
from stoker.base.layout import Layout
from stoker.control.evidence.stock import Stock, Want
from stoker.drivers import downloads
from stoker.drivers.downloads import Download, Progress

REPO = Want(repo="owner/model")


def stock(folder: Path) -> Stock:
    return Stock(layout=Layout(folder), hub_endpoint="http://127.0.0.1:9", wake=lambda: None)


def failing(error: Exception, *, rest: float = 0.0) -> Callable[..., object]:
    async def fetch(_download: Download, *, progress: Progress) -> Path:
        progress.retry_after = rest
        raise error

    return fetch


async def tried(made: Stock) -> None:
    made.fetch(REPO)
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def test_an_acceptance_counts_only_where_it_was_given(tmp_path: Path) -> None:
    model = str(tiny.make(tmp_path, license_name="llama3.1").gguf)
    made = stock(tmp_path)
    plain, accepted = made.look(Want(path=model)), made.look(Want(path=model, accepted=True))

    assert (plain.licence, plain.licence_accepted) == ("restricted", False)
    assert (accepted.licence, accepted.licence_accepted) == ("restricted", True)
    assert not made.look(Want(path=model)).licence_accepted


def test_an_absent_file_and_a_dangling_reference(tmp_path: Path) -> None:
    made = stock(tmp_path)

    assert made.look(Want(path=str(tmp_path / "no.gguf"))).files.reason == "FileNotFound"
    assert made.look(made.cache("default", "none")).files.reason == "CacheNotFound"
    assert made.look(REPO).files.reason == "Absent"


@pytest.mark.parametrize(
    ("error", "rest", "reason", "wait"),
    [
        pytest.param(Driver("x", reason="HubUnreachable"), 0.0, "HubUnreachable", 30, id="soon again"),
        pytest.param(Driver("x", reason="HubBusy"), 90.0, "HubBusy", 90, id="as the hub asks"),
        pytest.param(Driver("x", reason="HubBusy"), 1e9, "HubBusy", 3600, id="but not for ever"),
        pytest.param(Driver("x", reason="HubNotFound"), 0.0, "HubNotFound", 600, id="a person must act: seldom"),
        pytest.param(Driver("x"), 0.0, "FetchFailed", 30, id="no reason told"),
        pytest.param(Invalid("x"), 0.0, "NothingToFetch", 600, id="nothing that may be opened"),
        pytest.param(OSError("no process"), 0.0, "FetchFailed", 30, id="no process could be had"),
    ],
)
def test_a_failed_fetch_is_told_and_tried_again_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, rest: float, reason: str, wait: float
) -> None:
    made = stock(tmp_path)
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now)
    monkeypatch.setattr(downloads, "fetch", failing(error, rest=rest))
    asyncio.run(tried(made))
    told = made.look(REPO).files
    monkeypatch.setattr(clock, "now", lambda: now + wait - 1)
    before = made.look(REPO).files
    monkeypatch.setattr(clock, "now", lambda: now + wait + 1)

    assert (told.reason, before.reason) == (reason, reason)
    assert told.action
    assert made.look(REPO).files.reason == "Absent"
