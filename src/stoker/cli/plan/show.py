"""How a plan looks: the card as bars, then what it means."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.text import Text

from stoker.base.json import Json, JsonObject
from stoker.cli import output
from stoker.cli.plan import times
from stoker.drivers.weights import Survey
from stoker.predict import cost
from stoker.predict.coefficients import GIB
from stoker.predict.fits import Plan
from stoker.predict.flags import flags
from stoker.predict.overhead import Term

_WIDTH = 30  # columns of a bar that is the whole card


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What the user said about money and speed. 0: nothing."""

    usd_per_hour: float = 0.0
    tokens_per_second: float = 0.0
    asks: times.Asks = field(default_factory=times.Asks)


def plans(found: Survey, plans: Sequence[Plan], *, price: Price, explain: bool, form: str) -> None:
    """Print plans, the best first: all for a program, or for a person the best and the others in a line each."""
    if form:
        output.data({"model": found.name, "plans": [_as_json(plan, price) for plan in plans]}, form)
    else:
        _text(found, plans, price=price, explain=explain)


def _text(found: Survey, plans: Sequence[Plan], *, price: Price, explain: bool) -> None:
    plan = plans[0]
    ask, split = plan.ask, plan.ask.split
    version = f"@{ask.version}" if ask.version else f" (as since {plan.row.since})"
    cards = f"{split.ranks} x {ask.gpu.name}" if split.ranks > 1 else ask.gpu.name
    print(f"{found.name} on {cards}, {ask.engine}{version}: tp {split.tensor}, pp {split.pipeline}, dp {split.data}\n")
    _card(plan, explain=explain)
    print()
    if plan.pool is not None:
        span = f"{plan.sessions_low} to {plan.sessions_high}"
        print(f"KV cache      {plan.pool.tokens:,} tokens, {plan.token_bytes / 1024:.1f} KiB a token and rank")
        print(f"sessions      {plan.sessions} of {ask.context_tokens:,} tokens at once (band {span})")
    print(f"breaks first  {plan.breaks_first}")
    _long_run(plan)
    print(f"flags         {' '.join(flags(plan))}")
    timed = times.of(plan, price.asks)
    if timed is not None:
        times.text(timed)
    _money(plan, price, timed)
    for other in plans[1:]:
        print(f"instead       {_precision(other)}: {other.sessions} sessions; {other.breaks_first}")
    if split.quantize_to_bytes:
        why = (
            "the checkpoint's own precision leaves too little for what is wanted" if len(plans) > 1 else "as you asked"
        )
        print(f"chosen        {_precision(plan)}: {why}")
    for note in plan.notes:
        output.err.print(Text(f"note: {note}", style="yellow"))


def _card(plan: Plan, *, explain: bool) -> None:
    card = plan.budget.card_bytes
    rows: list[tuple[str, ...]] = []
    for term in plan.budget.terms:
        bar = "#" * max(0, round(term.size_bytes / card * _WIDTH))
        row = (term.name, f"{term.size_bytes / GIB:.2f}", _band(term), bar)
        rows.append((*row, term.source) if explain else row)
    rows.append(("card", f"{card / GIB:.2f}", "", "", *([f"{plan.ask.gpu.link}"] if explain else [])))
    output.table(("PER CARD", "GiB", "BAND", "", *(["SOURCE"] if explain else [])), rows)
    for term in plan.budget.outside:
        print(f"on top of the engine's share, within what is left free: {term.name} {_gib(term)} GiB")
    if explain:
        sizes = {role.value: size for role, size in plan.weights.by_role.items()} | dict(plan.weights.added)
        print("\nweights of the fullest rank")
        output.table(("ROLE", "GiB"), [(name, f"{size / GIB:.3f}") for name, size in sizes.items()])


def _long_run(plan: Plan) -> None:
    held = plan.long_run
    if held is None:
        return
    print(
        f"for weeks     utilization {held.utilization:.2f}, at most {held.sequences} sequences,"
        f" {held.sessions} sessions; reserves:"
    )
    for term in held.reserves:
        print(f"              {term.size_bytes / GIB:.2f} GiB {term.name}: {term.source}")


def _money(plan: Plan, price: Price, timed: times.Timed | None) -> None:
    told = plan.ask.gpu.price
    each, source = price.usd_per_hour, "yours"
    if not each and told is not None:
        each = (told.low_usd + told.high_usd) / 2
        source = f"catalogue, {told.date}: middle of {told.low_usd} to {told.high_usd} a card"
    if not each:
        print("price         no price in the catalogue: give --usd-per-hour")
        return
    hour = each * plan.ask.split.ranks
    print(f"price         ${hour:.2f} an hour ({source})")
    rate = price.tokens_per_second or (timed.speeds.output_tokens_per_second if timed else 0.0)
    if rate:
        parts = [f"${cost.per_million(hour, rate, use=use):.2f} at {use:.0%} use" for use in (0.3, 0.6, 1)]
        print(f"              a million output tokens at {rate:,.0f}/s: {', '.join(parts)}")


def _precision(plan: Plan) -> str:
    if plan.ask.split.quantize_to_bytes:
        return "FP8 on load"
    return "the checkpoint's own precision"


def _band(term: Term) -> str:
    if term.low_bytes is None or term.high_bytes is None:
        return ""
    return f"{term.low_bytes / GIB:.2f} to {term.high_bytes / GIB:.2f}"


def _gib(term: Term) -> str:
    return f"{term.size_bytes / GIB:.2f} ({_band(term)})" if _band(term) else f"{term.size_bytes / GIB:.2f}"


def _term(term: Term) -> JsonObject:
    return {
        "name": term.name,
        "bytes": round(term.size_bytes),
        "low_bytes": None if term.low_bytes is None else round(term.low_bytes),
        "high_bytes": None if term.high_bytes is None else round(term.high_bytes),
        "source": term.source,
    }


def _as_json(plan: Plan, price: Price) -> JsonObject:
    ask, held, pool = plan.ask, plan.long_run, plan.pool
    terms: list[Json] = [_term(term) for term in plan.budget.terms]
    return {
        "gpu": ask.gpu.name,
        "cards": ask.split.ranks,
        "engine": ask.engine,
        "version": ask.version,
        "parallel": {"tensor": ask.split.tensor, "pipeline": ask.split.pipeline, "data": ask.split.data},
        "quantize_on_load": "fp8" if ask.split.quantize_to_bytes else "",
        "fits": plan.fits,
        "card_bytes": round(plan.budget.card_bytes),
        "missing_bytes": round(plan.budget.missing_bytes),
        "budget": terms,
        "outside": [_term(term) for term in plan.budget.outside],
        "weights": {role.value: round(size) for role, size in plan.weights.by_role.items()},
        "kv_bytes_per_token": plan.token_bytes,
        "kv_tokens": pool.tokens if pool else 0,
        "context_tokens": ask.context_tokens,
        "sessions": plan.sessions,
        "sessions_low": plan.sessions_low,
        "sessions_high": plan.sessions_high,
        "breaks_first": plan.breaks_first,
        "long_run": None
        if held is None
        else {
            "utilization": held.utilization,
            "sequences": held.sequences,
            "sessions": held.sessions,
            "reserves": [_term(term) for term in held.reserves],
        },
        "flags": list(flags(plan)),
        "times": times.as_json(times.of(plan, price.asks)),
        "usd_per_hour": price.usd_per_hour * ask.split.ranks or None,
        "notes": list(plan.notes),
    }
