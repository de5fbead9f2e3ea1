"""Requests, steps and results made by hand."""

from collections.abc import Sequence

import msgspec

from stoker.bench.result import Asked, Result, Setup
from stoker.decide.measure.bar import Bar
from stoker.decide.measure.classes import Class
from stoker.decide.measure.sample import OUT_OF_REACH, Sample
from stoker.decide.measure.summary import Step, Taken, summarise
from stoker.facts.ending import Outcome
from stoker.facts.record import Tokens

BAR = Bar(limits=(("visible_ttft", 1.0),), share=0.9, error_rate=0.01)
_OUTCOMES = {Class.COMPLETE: Outcome.COMPLETE, Class.TIMEOUT: Outcome.TIMEOUT, Class.REJECTED: Outcome.ERROR}


def sample(number: int, *, ttft: float = 0.2, kind: Class = Class.COMPLETE, **more: object) -> Sample:
    whole = kind is Class.COMPLETE
    made = Sample(
        number=number,
        kind=kind,
        scheduled_seconds=number * 0.1,
        outcome=_OUTCOMES.get(kind),
        detail={Class.REJECTED: "429", Class.TIMEOUT: OUT_OF_REACH}.get(kind, ""),
        tokens=Tokens(prompt=100, output=11) if whole else Tokens(),
        first_byte_seconds=ttft,
        first_token_seconds=ttft if whole else 0.0,
        first_visible_seconds=ttft if whole else 0.0,
        last_token_seconds=ttft + 0.1 if whole else 0.0,
        total_seconds=ttft + 0.1,
        reads=11,
    )
    return msgspec.structs.replace(made, **more)


def taken(samples: Sequence[Sample], *, load: float = 1.0, seed: int = 1, **more: object) -> Taken:
    made = Taken(
        load=load,
        unit="rate",
        seed=seed,
        seconds=len(samples) * 0.1 + 1,
        samples=tuple(samples),
        gaps_seconds=[],
        loop_lags_seconds=[],
        cpu_seconds=0.01,
    )
    return msgspec.structs.replace(made, **more)


def step(
    load: float, samples: Sequence[Sample] | None = None, *, seed: int = 1, bar: Bar | None = BAR, **more: object
) -> Step:
    rows = samples if samples is not None else [sample(i) for i in range(20)]
    return summarise(taken(rows, load=load, seed=seed, **more), bar, warm_seconds=0.0)


def result(steps: Sequence[Step], **more: object) -> Result:
    asked = Asked(
        url="http://127.0.0.1:9/v1",
        model="m",
        dialect="chat",
        server="",
        profile="chat",
        source="",
        unit="rate",
        window_seconds=60,
        answers="model",
        head="first",
        exact_length=False,
        extra="",
        salt="s",
        tokens_per_word=1.0,
        tokens_per_message=4.0,
        tokens_per_request=10.0,
    )
    made = Result(
        kind="run", at="now", command="stoker bench run", setup=Setup.here(), asked=asked, bar=BAR, steps=tuple(steps)
    )
    return msgspec.structs.replace(made, **more)
