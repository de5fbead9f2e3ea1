"""Tables that two workers share."""

from pathlib import Path

from stoker.drivers.tables.retries import Retries
from stoker.drivers.tables.strikes import Strikes
from stoker.drivers.tables.turns import Turns


def test_strikes_are_seen_by_the_other_worker(tmp_path: Path) -> None:
    one, two = Strikes(tmp_path / "s"), Strikes(tmp_path / "s")
    assert not two.any(1000.0)
    one.strike(b"abcdefgh", 1000.0)
    two.strike(b"abcdefgh", 1001.0)

    assert two.any(1100.0)
    assert one.of(b"abcdefgh") == (2, 1001.0)
    assert one.of(b"ijklmnop") == (0, 0.0)
    two.clear(b"abcdefgh")
    assert one.of(b"abcdefgh") == (0, 0.0)
    assert not two.any(1601.1)
    for table in (one, two):
        table.close()


def test_an_old_strike_does_not_add_up(tmp_path: Path) -> None:
    table = Strikes(tmp_path / "s")
    table.strike(b"abcdefgh", 1000.0)
    table.strike(b"abcdefgh", 1700.0)
    assert table.of(b"abcdefgh") == (1, 1700.0)
    table.close()


def test_who_claims_a_turn_last_has_it(tmp_path: Path) -> None:
    one, two = Turns(tmp_path / "t", 0), Turns(tmp_path / "t", 1)
    first = one.claim(b"abcdefgh")
    assert not one.lost(b"abcdefgh", first)
    second = two.claim(b"abcdefgh")
    assert one.lost(b"abcdefgh", first)
    one.release(b"abcdefgh", first)
    assert not two.lost(b"abcdefgh", second)
    two.release(b"abcdefgh", second)
    assert not two.lost(b"abcdefgh", second)  # nobody has it
    for table in (one, two):
        table.close()


def test_retries_are_one_budget(tmp_path: Path) -> None:
    one, two = Retries(tmp_path / "r"), Retries(tmp_path / "r")
    granted = [table.spend("default/a", requests=0, now=100.0) for _ in range(8) for table in (one, two)]
    assert sum(granted) == 10
    assert one.spend("default/b", requests=0, now=100.0)
    assert two.spend("default/a", requests=10, now=100.0)
    for table in (one, two):
        table.close()
