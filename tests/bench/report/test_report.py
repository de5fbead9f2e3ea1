"""The page says what was found, in one file that loads nothing, whatever was measured."""

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.bench.made import result, sample, step

from stoker.bench.report.charts import Axes, Band, Curve, Point, chart, ticks
from stoker.bench.report.page import page
from stoker.bench.report.pictures import by_level, worth_a_look
from stoker.decide.measure.capacity import Capacity, Verdict
from stoker.decide.measure.classes import Class
from stoker.decide.measure.summary import Step

SLOW = [sample(i, ttft=3.0) for i in range(20)]
FAILED = [sample(i, kind=Class.REJECTED, message="<b>full</b>") for i in range(20)]
STEPS = [
    step(4.0, seed=1), step(2.0, seed=1), step(8.0, SLOW, seed=1), step(2.0, seed=2), step(6.0, trouble="late"),
]  # fmt: skip


def drawn(found: list[Step], **more: object) -> str:
    return page(result(found, **more), [[sample(i) for i in range(5)] for _ in found])


def test_runs_of_a_level_are_put_together_and_late_ones_left_out() -> None:
    assert [[one.load for one in runs] for runs in by_level(STEPS)] == [[2.0, 2.0], [4.0], [8.0]]


def test_what_is_shown_in_time_is_on_both_sides_of_the_bar() -> None:
    assert worth_a_look(STEPS) == [0, 2]
    assert worth_a_look([step(1.0, bar=None), step(2.0, bar=None)]) == [1]
    assert worth_a_look([]) == []


def test_a_capacity_is_drawn_with_its_interval_and_its_verdict() -> None:
    found = Capacity(verdict=Verdict.CAPACITY, value=5.0, low=4.5, high=5.5, seeds=6, levels=5)
    text = drawn(STEPS, capacity=found, verdict="capacity 5 requests/s", cannot_claim=("a word",))
    assert '<p class="verdict">capacity 5 requests/s</p>' in text
    assert "this does not say a word" in text
    assert 'class="band"' in text
    assert "not measured: late" in text
    assert 'class="band"' not in drawn(STEPS)


def test_the_page_loads_nothing_and_believes_nobody() -> None:
    asked = msgspec.structs.replace(result([]).asked, model="<script>alert(1)</script>")
    text = page(result([step(1.0, FAILED)], asked=asked), [FAILED])
    assert "<script" not in text
    assert "&lt;b&gt;full&lt;/b&gt;" in text
    assert "<b>full" not in text
    assert not re.search(r"(?:src|href)\s*=|url\(|@import", text)


@pytest.mark.parametrize("steps", [[], [step(1.0, [])], [step(1.0, FAILED)], [step(1.0, trouble="late")]])
def test_a_page_is_written_of_nothing_much_as_well(steps: list[Step]) -> None:
    text = page(result(steps), [[] for _ in steps])
    assert text.startswith("<!doctype html>")
    assert text.endswith("</html>\n")


@given(st.floats(1e-6, 1e9))
def test_axes_have_a_few_round_figures(most: float) -> None:
    found = ticks(most)
    assert found[0] == 0
    assert 3 <= len(found) <= 7
    assert found[-1] <= most * (1 + 1e-6)


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), max_size=20),
    st.one_of(st.none(), st.floats(0, 1e6)),
    st.tuples(st.floats(0, 10), st.floats(0, 10), st.floats(0, 10)),
)
def test_everything_is_drawn_inside_the_picture(
    points: list[tuple[float, float]], level: float | None, band: tuple[float, float, float]
) -> None:
    low, at, high = sorted(band)
    axes = Axes(across="x", up="y", level=level, band=Band(low=low, at=at, high=high))
    svg = chart([Curve(name="c", points=[Point(*each) for each in points], colour="#000")], axes)
    for x, y in re.findall(r'cx="([^"]+)" cy="([^"]+)"', svg):
        assert 0 <= float(x) <= 720
        assert 0 <= float(y) <= 300
    assert "nan" not in svg
    assert 'width="-' not in svg
