"""How the predicted times of a load look."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.base.errors import Fault, Invalid
from stoker.base.json import JsonObject
from stoker.predict.fits import Plan

if TYPE_CHECKING:
    from stoker.drivers.figures.opinion import Opinion
    from stoker.predict.timing.speed import Speeds


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A load and its predicted times."""

    prompt: int
    output: int
    batch: int
    speeds: "Speeds"
    opinion: "Opinion | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asks:
    """What is to be predicted. ``load`` as PROMPT/OUTPUT/BATCH; ``program`` is asked too, of the ``model`` on disk."""

    load: str = ""
    program: Path | None = None
    model: str = ""


def of(plan: Plan, asks: Asks) -> Timed | None:
    """Predict the times of a load; None without a load, a start, or rows of the engine."""
    load = asks.load
    parts = load.split("/")
    if not load:
        return None
    if len(parts) != 3 or not all(part.isdigit() and int(part) for part in parts):
        why = f"'{load}' is no load"
        raise Invalid(Fault(message=why, field="--load", hint="PROMPT/OUTPUT/BATCH, as in 8192/1024/32"))
    from stoker.drivers import figures
    from stoker.predict.timing.speed import speeds

    prompt, answer, batch = (int(part) for part in parts)
    found = None if plan.pool is None else speeds(plan, figures.speed(), prompt=prompt, output=answer, batch=batch)
    if found is None:
        return None
    timed = Timed(prompt=prompt, output=answer, batch=batch, speeds=found)
    if asks.program is None:
        return timed
    from stoker.drivers.figures import opinion

    second = opinion.ask(asks.program, plan, Path(asks.model).expanduser(), prompt=prompt, output=answer, batch=batch)
    return replace(timed, opinion=second)


def text(timed: Timed) -> None:
    """Print them for a person."""
    s = timed.speeds
    print(f"load          {timed.batch} at once, {timed.prompt:,} tokens in, {timed.output:,} out")
    print(f"TPOT          {s.tpot * 1e3:.1f} ms (band {s.tpot_low * 1e3:.1f} to {s.tpot_high * 1e3:.1f})")
    print(f"TTFT          {s.ttft * 1e3:.0f} ms (band {s.ttft_low * 1e3:.0f} to {s.ttft_high * 1e3:.0f})")
    print(f"rate          {s.output_tokens_per_second:,.0f} output tokens a second")
    flips = [f"from {s.flips_at} at once"] if s.flips_at else []
    flips += [f"from a context of {s.context_flips_at:,}"] if s.context_flips_at else []
    print(f"decode        bound by {s.bound_by}" + (f"; something else {' or '.join(flips)} on" if flips else ""))
    later = f"; something else from {s.prefill_flips_at:,} tokens on" if s.prefill_flips_at else ""
    print(f"prefill       bound by {s.prefill_bound_by}{later}")
    if timed.opinion is not None:
        o = timed.opinion
        print(
            f"second        {o.source}: TPOT {o.tpot * 1e3:.1f} ms, TTFT {o.ttft * 1e3:.0f} ms"
            f" (ours is {s.tpot / o.tpot - 1:+.0%} and {s.ttft / o.ttft - 1:+.0%} of it)"
        )
    if s.extrapolated:
        print(f"extrapolated  beyond the measured rows: {', '.join(s.extrapolated)}; the band begins at the roofline")


def as_json(timed: Timed | None) -> JsonObject | None:
    """Write them as an object."""
    if timed is None:
        return None
    s = timed.speeds
    return {
        "prompt_tokens": timed.prompt,
        "output_tokens": timed.output,
        "batch": timed.batch,
        "tpot_seconds": s.tpot,
        "tpot_low_seconds": s.tpot_low,
        "tpot_high_seconds": s.tpot_high,
        "ttft_seconds": s.ttft,
        "ttft_low_seconds": s.ttft_low,
        "ttft_high_seconds": s.ttft_high,
        "output_tokens_per_second": s.output_tokens_per_second,
        "bound_by": s.bound_by,
        "flips_at_batch": s.flips_at,
        "flips_at_context_tokens": s.context_flips_at,
        "prefill_bound_by": s.prefill_bound_by,
        "prefill_flips_at_tokens": s.prefill_flips_at,
        "second_opinion": None
        if timed.opinion is None
        else {
            "source": timed.opinion.source,
            "tpot_seconds": timed.opinion.tpot,
            "ttft_seconds": timed.opinion.ttft,
        },
        "extrapolated": list(s.extrapolated),
    }
