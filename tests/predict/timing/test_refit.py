"""How wrong are predicted times? Judged on measured rows of models and systems that the fit has not seen."""

import csv
from functools import cache

import numpy as np
import pytest
from tests.predict.figures import DATA

from stoker.drivers import figures
from stoker.predict.timing import refit, roofline, rows
from stoker.predict.timing.refit import Errors, Measured


@cache
def measured() -> Measured:
    known = figures.model_rows([DATA / "models.json", DATA / "more_models.json"])
    with (DATA / "latency_rows.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    return rows.read(table, {name: row.shape for name, row in known.items()}, figures.gpus())


@cache
def models_left_out() -> Errors:
    return refit.leave_out(measured(), [refit.family(name) for name in measured().model])


def told(title: str, errors: Errors, capsys: pytest.CaptureFixture[str]) -> tuple[float, float]:
    tpot, ttft = (float(np.median(abs(each))) for each in (errors.tpot, errors.ttft))
    with capsys.disabled():
        print(f"\n{title}, {len(errors.tpot)} rows: median error TPOT {tpot:.2%}, TTFT {ttft:.2%}")
    return tpot, ttft


def test_models_that_the_fit_has_not_seen(capsys: pytest.CaptureFixture[str]) -> None:
    tpot, ttft = told("each model left out", models_left_out(), capsys)

    assert len(measured().tpot) > 2500
    assert tpot <= 0.12
    assert ttft <= 0.30


def test_systems_that_the_fit_has_not_seen(capsys: pytest.CaptureFixture[str]) -> None:
    tpot, ttft = told("each system left out", refit.leave_out(measured(), measured().system), capsys)

    assert tpot <= 0.13
    assert ttft <= 0.31


def test_one_measured_point_of_the_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    m = measured()
    keys = [f"{deployment} {lengths}" for deployment, lengths in zip(m.deployment, m.lengths, strict=True)]
    tpot, ttft = told("one point known, its model left out", refit.anchored(models_left_out(), m, keys), capsys)

    assert tpot <= 0.06
    assert ttft <= 0.12


def test_the_shipped_coefficients_are_what_the_rows_give() -> None:
    made, shipped = refit.summary(measured()), figures.speed()

    assert made.coefficients == pytest.approx(shipped.coefficients, rel=0.02)
    assert (made.rows, made.prompt_high) == (shipped.rows, shipped.prompt_high)


def test_an_anchor_takes_its_own_error_from_the_others() -> None:
    m = measured().take(range(3))
    errors = Errors(tpot=np.full(3, 0.5), ttft=np.full(3, -0.2), group=("a",) * 3)
    left = refit.anchored(errors, m, ["one", "one", "alone"])

    assert left.tpot == pytest.approx([0.0])
    assert left.ttft == pytest.approx([0.0])


def test_a_larger_batch_and_a_longer_prompt_never_take_less_time() -> None:
    work = measured().work
    found = roofline.times(work, figures.speed().coefficients)
    for name in ("batch", "prompt"):
        grown = {field: getattr(work, field) for field in type(work).__dataclass_fields__}
        grown[name] = grown[name] * 2
        more = roofline.times(type(work)(**grown), figures.speed().coefficients)
        assert (more.step >= found.step - 1e-12).all()
        assert (more.ttft >= found.ttft - 1e-12).all()
