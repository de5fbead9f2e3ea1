"""How wrong is the memory model? Judged on published start-up logs, each by a fit that has not seen its model."""

import statistics
from collections.abc import Sequence

import pytest
from tests.predict.figures import starts

from stoker.drivers import figures
from stoker.predict import learn
from stoker.predict.coefficients import memory
from stoker.predict.learn import Judged

ROW = memory(figures.coefficients(), "vllm", "0.19.0")
SEEN = [start for start in starts() if start.version.startswith(("0.18", "0.19"))]


def told(title: str, judged: Sequence[Judged], capsys: pytest.CaptureFixture[str]) -> list[float]:
    errors = sorted(each.error for each in judged)
    worst = max(judged, key=lambda each: each.error)
    with capsys.disabled():
        print(
            f"\n{title}, {len(errors)} logs, leave-one-model-out: median {statistics.median(errors):.3%}, "
            f"p90 {errors[int(0.9 * len(errors))]:.3%}, max {errors[-1]:.2%} ({worst.start.row.id})"
        )
    return errors


def test_cache_from_utilization_and_checkpoint(capsys: pytest.CaptureFixture[str]) -> None:
    judged = learn.judge(SEEN, ROW, lambda start: start.weights)
    errors = told("KV GiB from utilization and checkpoint", judged, capsys)

    assert len(errors) >= 40
    assert statistics.median(errors) <= 0.01
    assert errors[int(0.9 * len(errors))] <= 0.03


def test_cache_from_utilization_and_logged_weights(capsys: pytest.CaptureFixture[str]) -> None:
    judged = learn.judge(SEEN, ROW, lambda start: start.logged_weights)
    errors = told("KV GiB from utilization and logged weights", judged, capsys)

    assert len(errors) >= 55
    assert statistics.fmean(errors) <= 0.002
    assert errors[-1] <= 0.0125


def test_other_versions_are_told_by_their_own_row() -> None:
    older = [start for start in starts() if start not in SEEN]
    table = figures.coefficients()
    errors = {}
    for start in older:
        weights = start.logged_weights
        assert weights is not None
        row = memory(table, "vllm", start.version)
        got = learn.predict(start, row, weights).cache.size_bytes / 2**30
        errors[start.row.id] = abs(got / start.cache_gib - 1)

    assert len(errors) >= 3
    assert max(errors.values()) <= 0.01


def test_the_shipped_coefficients_are_what_the_logs_give() -> None:
    assert learn.fit(SEEN, ROW) == ROW
