"""What did a real start take beside what was planned? `stoker plan check`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stoker.base import clock
from stoker.base.errors import Fault, Invalid, NotFound
from stoker.base.json import Json, JsonObject
from stoker.cli import output
from stoker.cli.plan import cards
from stoker.cli.settings import Settings

if TYPE_CHECKING:
    from stoker.cli.plan.started import Started
    from stoker.drivers.weights import Survey
    from stoker.predict.fits import Plan
    from stoker.predict.seen import Case, Side


def check(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help="The model that was started: as for `stoker plan`.")],
    *,
    gpu: Annotated[str, typer.Option(help="The card that it runs on; cpu for this machine.")],
    log: Annotated[Path | None, typer.Option(help="The engine's start-up log.")] = None,
    url: Annotated[str, typer.Option(help="The live engine, such as http://127.0.0.1:8000.")] = "",
    key_file: Annotated[Path | None, typer.Option(help="Holds the key that the live engine asks for.")] = None,
    pid: Annotated[int, typer.Option(help="The engine's process here, for what all of it takes.")] = 0,
    engine: Annotated[str, typer.Option(help="ENGINE[@VERSION]; otherwise as the log or the engine tells.")] = "",
    tp: Annotated[int, typer.Option(help="Tensor parallel ranks (as the log tells).")] = 0,
    length: Annotated[int, typer.Option("--context", help="Tokens of a session (as the log tells).")] = 0,
    sessions: Annotated[int, typer.Option(help="Slots of llama.cpp (as the log tells).")] = 0,
    utilization: Annotated[float, typer.Option(help="Share of the card (as the log tells).")] = 0.0,
    kv_dtype: Annotated[str, typer.Option(help="Of the cache: auto or fp8 (as the log tells).")] = "auto",
    card: Annotated[str, typer.Option(help="Memory of a card as its runtime sees it, such as 79.19Gi.")] = "",
    keep: Annotated[bool, typer.Option("--keep/--no-keep", help="Learn from it.")] = True,
    form: Annotated[str, typer.Option("--output", "-o", help="json or yaml.")] = "",
) -> None:
    """Print predicted beside observed with the likely cause of each difference, and learn from it."""
    from stoker.cli.plan import source, started
    from stoker.drivers.figures import starts
    from stoker.predict import seen

    if (log is None) == (not url):
        raise Invalid(Fault(message="say where the start is seen", hint="--log FILE, or --url of the live engine"))
    settings: Settings = context.obj
    found = source.find(model, settings)
    told = started.from_log(log, engine) if log else started.from_engine(url, key_file, engine)
    plan = started.plan(
        found,
        told,
        cards.find(gpu, card),
        wish=started.Wish(tp=tp, length=length, sessions=sessions, utilization=utilization, kv_dtype=kv_dtype),
    )
    case = _case(found, plan, told, where=str(log or url), used=started.memory(pid) if pid else None)
    kept = starts.add(settings.layout.starts, case) if keep and case.extra_bytes is not None else ()
    sides = seen.sides(case)
    if not sides:
        raise NotFound(f"{log or url} tells nothing that can be compared")
    if form:
        output.data(_as_json(case, sides, len(kept)), form)
    else:
        _text(case, sides, kept)


def _case(found: "Survey", plan: "Plan", told: "Started", *, where: str, used: float | None) -> "Case":
    from stoker.predict import seen

    expected, facts = seen.expected(plan, cache_bytes=told.asked.cache_bytes), told.facts
    ranks = plan.ask.split.tensor if told.engine == "llama.cpp" else 1
    return seen.Case(
        at=clock.now(),
        engine=told.engine,
        version=told.version,
        gpu=plan.ask.gpu.name,
        model=found.name,
        context_tokens=plan.ask.context_tokens,
        predicted_weight_bytes=expected.weights,
        predicted_cache_bytes=expected.cache,
        predicted_cache_tokens=expected.tokens,
        predicted_used_bytes=expected.used,
        weight_bytes=None if facts.weight_bytes is None else facts.weight_bytes / ranks,
        cache_bytes=None if facts.kv_cache_bytes is None else facts.kv_cache_bytes / ranks,
        cache_tokens=facts.kv_cache_tokens,
        used_bytes=used,
        seen_context_tokens=told.asked.context or None,
        seen_sequences=told.asked.sequences or None,
        source=where,
    )


def _text(case: "Case", sides: "Sequence[Side]", kept: "Sequence[Case]") -> None:
    version = f"@{case.version}" if case.version else ""
    print(f"{case.model} on {case.gpu}, {case.engine}{version}\n")
    rows = [
        (
            side.name,
            f"{side.predicted:,.2f}",
            f"{side.observed or 0:,.2f}",
            side.unit,
            f"{side.error or 0:+.1%}",
            side.why,
        )
        for side in sides
    ]
    output.table(("WHAT", "PREDICTED", "OBSERVED", "", "ERROR", "LIKELY CAUSE"), rows)
    if kept:
        from stoker.drivers import figures
        from stoker.predict import seen
        from stoker.predict.coefficients import learned

        row = learned(seen.taught(figures.coefficients(), kept), case.engine, case.version, case.gpu)
        if row is not None:
            count = "1 start" if row.cases == 1 else f"{row.cases} starts"
            print(f"\nlearned       {row.extra_gib:+.2f} GiB on this card from {count}: the next plan counts it")


def _as_json(case: "Case", sides: "Sequence[Side]", cases: int) -> JsonObject:
    told: list[Json] = [
        {
            "what": side.name,
            "unit": side.unit,
            "predicted": side.predicted,
            "observed": side.observed,
            "error": side.error,
            "likely_cause": side.why,
        }
        for side in sides
    ]
    return {
        "engine": case.engine,
        "version": case.version,
        "gpu": case.gpu,
        "model": case.model,
        "sides": told,
        "extra_bytes": case.extra_bytes,
        "cases": cases,
    }
