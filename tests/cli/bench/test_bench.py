"""What the commands of `stoker bench` make of their options, and what they weigh."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.bench.made import result, sample, step
from typer.testing import CliRunner

from stoker.base.errors import Invalid
from stoker.bench import result as results
from stoker.bench.selfcheck import play
from stoker.bench.selfcheck.checks import Row
from stoker.cli import main
from stoker.cli.bench import options
from stoker.cli.bench.run import level
from stoker.cli.bench.show import sentence
from stoker.decide.measure.summary import Step
from stoker.drivers import figures
from stoker.predict.gpu import find

_SEEN = find(figures.gpus(), "H200").price
H200 = (_SEEN.low_usd + _SEEN.high_usd) / 2 if _SEEN is not None else 0.0
HEAVY = {"pydantic", "starlette", "uvicorn", "huggingface_hub", "celpy", "numpy", "torch", "transformers", "httpx"}


@pytest.mark.parametrize("code", [0, 1])
@pytest.mark.parametrize("form", [[], ["-o", "json"]])
def test_a_check_that_fails_is_an_exit_code(monkeypatch: pytest.MonkeyPatch, code: int, form: list[str]) -> None:
    def rows(_tell: Callable[[str], None]) -> Iterator[Row]:
        yield Row(name="first", what="w", found="f", target="t", ok=True)
        yield Row(name="second", what="w", found="f", target="t", ok=code == 0)

    monkeypatch.setattr(play, "selfcheck", rows)
    done = CliRunner().invoke(main.build("bench"), ["bench", "selfcheck", *form])
    assert done.exit_code == code
    assert "second" in done.stdout
    if not form:
        assert ("FAILED" in done.stdout) is bool(code)


@pytest.mark.parametrize(
    ("asked", "want"), [("23.5", 23.5), (0.0, 0.0), ("2xH200", 2 * H200), (" 8 x h200", 8 * H200), ("1xh200sxm", H200)]
)
def test_a_price_is_dollars_or_cards(asked: str | float, want: float) -> None:
    assert options.price(asked) == want


@pytest.mark.parametrize(
    ("asked", "says"),
    [("much", "'much' is no price an hour"), ("-1", "is no price"), ("nan", "is no price"), ("2xH20x", "H200")],
)
def test_a_price_that_is_none_is_refused(asked: str, says: str) -> None:
    with pytest.raises(Invalid, match=says) as caught:
        options.price(asked)
    assert "--usd-per-hour" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ((8, 0, 0.0, 0.0), ("concurrency", 8.0)),
        ((0, 20, 0.0, 0.0), ("users", 20.0)),
        ((0, 0, 2.5, 0.0), ("rate", 2.5)),
        ((0, 0, 0.0, 1.0), ("speed", 1.0)),
        ((0, 0, 0.0, 0.0), None),
        ((8, 0, 2.5, 0.0), None),
    ],
)
def test_a_load_is_said_in_one_way(given: tuple[int, int, float, float], want: tuple[str, float] | None) -> None:
    if want is not None:
        assert level(*given) == want
        return
    with pytest.raises(Invalid, match="in one way"):
        level(*given)


USECASE = """
apiVersion: stoker.dev/v1alpha1
kind: UseCase
metadata: {name: ours}
spec:
  preset: chat
  bar: {visibleTtftP90Seconds: 3, tokensPerSecondPerUser: 20, errorRate: 0.02}
"""


def test_bars_come_from_a_preset_a_file_or_a_use_case(tmp_path: Path) -> None:
    assert options.bar("") is None
    preset = options.bar("agent")
    assert preset is not None
    assert preset.name == "coding-agent"
    own = tmp_path / "bar.yaml"
    own.write_text("visible_ttft_p95_seconds: 3\nerror_rate: 0.02\n")
    read = options.bar(str(own))
    assert read is not None
    assert (read.limits, read.share, read.error_rate) == ((("visible_ttft", 3.0),), 0.95, 0.02)
    own.write_text(USECASE)
    declared = options.bar(str(own))
    assert declared is not None
    assert declared.limits == (("visible_ttft", 3.0), ("tpot", 0.05))
    own.write_text(USECASE.replace("kind: UseCase", "kind: UseCasa"))
    with pytest.raises(Invalid, match="UseCase"):
        options.bar(str(own))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("visible_ttft_p90_secs: 3", "bar.yaml: visible_ttft_p90_secs: there is no such metric"),
        ("[1]", "bar.yaml: it is no bar"),
        ("a: [", "bar.yaml: it cannot be read"),
        ("visible_ttft_p90_seconds: soon", "'soon' is no number from 0 on"),
        ("visible_ttft_p90_seconds: 1\ntpot_p95_seconds: 1", "ask for different shares"),
    ],
)
def test_a_bar_that_is_none_is_refused_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    own = tmp_path / "bar.yaml"
    own.write_text(text)
    with pytest.raises(Invalid) as caught:
        options.bar(str(own))
    assert says in str(caught.value)
    with pytest.raises(Invalid, match="No such file"):
        options.bar(str(tmp_path / "none.yaml"))


def test_recorded_runs_that_fail_differently_are_compared_only_when_that_is_said(tmp_path: Path) -> None:
    whole = [step(2.0, seed=seed) for seed in (1, 2, 3)]
    slower = [step(2.0, seed=seed, seconds=6.0) for seed in (1, 2, 3)]
    for name, steps in (("a", whole), ("b", slower)):
        results.write(tmp_path / name, result(steps), [[] for _ in steps], "")
    words = ["bench", "compare", str(tmp_path / "a"), str(tmp_path / "b")]
    done = CliRunner().invoke(main.build("bench"), words)
    assert done.exit_code == 0, done.exception
    assert "goodput: B is 0.500 x A" in done.stdout


CUT = "; interrupted: this is what was measured until then"
LEFT = " runs were not measured"
SLOW = [sample(i, ttft=3.0) for i in range(20)]


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ([], "nothing was measured"),
        ([step(2.0)], "the bar was met: 100.0% of 20 scheduled requests met it"),
        ([step(2.0, SLOW)], "the bar was failed: 0.0% of 20 scheduled requests met it"),
        ([step(2.0, bar=None)], "73 output tokens/s, 100.0% whole answers"),
        ([step(2.0, trouble="late")], "not measured: late"),
        (
            [step(2.0, interrupted=True)],
            f"the bar was met: 100.0% of 20 scheduled requests met it{CUT}",
        ),
        (
            [step(2.0), step(2.0, SLOW, seed=2), step(2.0, seed=3, trouble="late")],
            "the bar was met in 1 of 2 runs: 50.0% of 40 scheduled requests met it, 0-73 output tokens/s; 1 of 3"
            + LEFT,
        ),
        ([step(2.0, bar=None), step(2.0, bar=None)], "73-73 output tokens/s, 100.0% whole answers in 2 runs"),
        ([step(2.0, trouble="late")] * 2, "not measured: late; 2 of 2" + LEFT),
    ],
)
def test_a_run_in_a_sentence(steps: list[Step], says: str) -> None:
    assert sentence(steps) == says


def test_a_benchmark_is_light_to_read() -> None:
    """Under half a second of CPU is promised; what would break that are the heavy packages, and they are named."""
    parts = ["run", "ramp", "compare", "selfcheck", "others", "checks", "labs"]
    code = (
        "import sys\n"
        + "".join(f"import stoker.cli.bench.{part}\n" for part in parts)
        + "import stoker.bench.step, stoker.bench.search, stoker.bench.report.page, stoker.bench.reach\n"
        + "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) & HEAVY == set()
