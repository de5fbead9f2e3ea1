"""What fits into a context, by bytes and by count."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.decide.steer.window import LEAST_OUTPUT, Ratio, Verdict, Window, window


@pytest.mark.parametrize(
    ("band", "context", "output", "exact", "want"),
    [
        ((100, 500), 0, 4096, None, Window(verdict=Verdict.FITS)),  # unknown context
        ((100, 500), 8192, 4096, None, Window(verdict=Verdict.FITS)),
        ((100, 5000), 8192, 4096, None, Window(verdict=Verdict.COUNT)),
        ((9000, 20000), 8192, 4096, None, Window(verdict=Verdict.OVERFLOW, prompt=9000)),
        ((100, 5000), 8192, 4096, 4000, Window(verdict=Verdict.FITS, prompt=4000)),
        ((100, 5000), 8192, 4096, 5000, Window(verdict=Verdict.FITS, prompt=5000, output=3192)),
        ((100, 9000), 8192, 4096, 8100, Window(verdict=Verdict.OVERFLOW, prompt=8100)),
        ((100, 9000), 8192, 16, 8176, Window(verdict=Verdict.FITS, prompt=8176)),  # a short answer was asked for
        ((100, 9000), 8192, 0, 8192, Window(verdict=Verdict.FITS, prompt=8192)),  # embeddings
        ((100, 9000), 8192, 0, 8193, Window(verdict=Verdict.OVERFLOW, prompt=8193)),
    ],
)
def test_window(band: tuple[int, int], context: int, output: int, exact: int | None, want: Window) -> None:
    assert window(band=band, context=context, output=output, exact=exact) == want


@given(st.integers(1, 10**6), st.integers(0, 10**5), st.integers(0, 10**6))
def test_what_is_let_through_fits(context: int, output: int, exact: int) -> None:
    found = window(band=(0, exact * 2), context=context, output=output, exact=exact)

    if found.verdict is Verdict.FITS:
        assert exact + (found.output or output) <= context
        assert not found.output or found.output >= min(output, LEAST_OUTPUT)
    else:
        assert found.verdict is Verdict.OVERFLOW
        assert exact + min(output, LEAST_OUTPUT) > context


@given(st.lists(st.tuples(st.integers(2048, 10**6), st.floats(0.15, 0.8)), min_size=20, max_size=60))
def test_a_learned_band_holds_what_it_learned(seen: list[tuple[int, float]]) -> None:
    ratio = Ratio()
    for size, per in seen:
        ratio.learn(size, max(1, round(size * per)))
    for size, per in seen:
        least, most = ratio.band(size)
        assert least <= round(size * per) <= most


def test_nothing_is_learned_from_a_few_or_from_short_prompts() -> None:
    ratio = Ratio()
    for _ in range(19):
        ratio.learn(10_000, 2500)
    assert ratio.band(12_000) == (1714, 10000)
    ratio.learn(100, 90)
    ratio.learn(10_000, 0)
    assert ratio.seen == 19
