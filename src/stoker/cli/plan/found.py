"""How the result of a search looks: to a person and to a program."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stoker.base.json import Json, JsonObject
from stoker.cli import output
from stoker.cli.plan.manifest import output_cap
from stoker.cli.plan.wish import Wish
from stoker.decide.goodput.prices import Milestone, Money
from stoker.decide.goodput.search import Option, Result, settled
from stoker.predict.batching.score import Spread
from stoker.predict.cost import Prices
from stoker.predict.flags import flags


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """Everything that is told. ``dates``: of the prices, by card."""

    model: str
    wish: Wish
    result: Result
    money: Money | None = None
    growth: tuple[Milestone, ...] = ()
    needed: int = 0  # replicas at the end of the growth
    dates: Mapping[str, str] = field(default_factory=dict)

    @property
    def best(self) -> Option | None:
        """The first of the first place."""
        return next(iter((*self.result.options, *self.result.unpriced)), None)


def text(story: Story, *, explain: bool) -> None:
    """Print it for a person."""
    wish, result = story.wish, story.result
    wanted, mix, slo = wish.wanted, wish.wanted.mix, wish.wanted.slo
    print(f"{story.model} for {wanted.profile.name}: {wanted.profile.source}")
    who = f"{wish.users} users: {wish.ratio:.3f} in flight for each, " if wish.users else ""
    print(f"load          {who}{wanted.in_flight:.1f} requests in flight ({wish.why})")
    print(
        f"a request     {mix.prompt:,.0f} tokens in, {mix.shared / max(1, mix.prompt):.0%} of them sent before;"
        f" {mix.output:,.0f} out, {mix.hidden / max(1, mix.output):.0%} of them thought"
    )
    print(
        f"bar           9 of 10 see the first word within {slo.visible_ttft_p90_seconds:g} s and read"
        f" {1 / slo.tpot_p90_seconds:g} tokens a second; {slo.error_rate:.1%} errors\n"
    )
    if result.options:
        _table(result.options, story, money=True)
    if result.unpriced:
        print("\nwithout a price, by cards:" if result.options else "no card has a price; by cards:")
        _table(result.unpriced, story, money=False)
    print(f"\nsearched      {result.searched} configurations; those of one place differ by less than the band")
    if result.pareto:
        print("Pareto        " + "\n              ".join(_short(o) for o in result.pareto))
    _fallen(result)
    best = story.best
    if best is None:
        print("nothing serves this within the bar")
        return
    _best(best, story)
    _money(story.money)
    _growth(story)
    if explain:
        _explain(best, story)


def _table(options: Sequence[Option], story: Story, *, money: bool) -> None:
    columns = (
        "PLACE",
        "CONFIGURATION",
        "REPLICAS",
        "CARDS",
        "BAND",
        "$/H",
        "TAKES",
        "TTFT P90",
        "TPOT P90",
        "FULL FIRST",
    )
    rows = []
    for o in options:
        proof = o.proof
        rows.append(
            (
                str(o.place),
                o.candidate.label + ("  (extrapolated)" if o.extrapolated else ""),
                str(o.replicas),
                str(o.cards),
                f"{o.cards_low} to {o.cards_high}",
                f"{o.usd:.2f}" if o.usd is not None and money else "-",
                f"{_takes(o)} each",
                f"{proof.visible_ttft.p90:.2f} s" if proof else "-",
                f"{proof.tpot.p90 * 1e3:.0f} ms" if proof else "-",
                o.capacity.why if o.capacity else o.guess.bound,
            )
        )
    output.table(columns, rows)
    dated = {f"{o.candidate.plan.ask.gpu.name} {story.dates[o.candidate.plan.ask.gpu.name]}" for o in options
             if o.candidate.plan.ask.gpu.name in story.dates}  # fmt: skip
    if money and dated:
        print(f"prices of     {', '.join(sorted(dated))}")


def _takes(option: Option) -> str:
    """What one replica takes; where nobody looked further, at least that."""
    more = "over " if option.capacity is not None and option.capacity.beyond is None else ""
    return f"{more}{option.each:.0f}"


def _short(option: Option) -> str:
    proof = option.proof
    cost = f"${option.usd:.2f}/h" if option.usd is not None else f"{option.cards} cards"
    seen = f", {proof.visible_ttft.p90:.2f} s, {1 / max(1e-9, proof.tpot.p90):.0f} tokens/s" if proof else ""
    return f"{cost}{seen}: {option.replicas} x {option.candidate.label}"


def _fallen(result: Result) -> None:
    kinds = Counter(dropped.kind for dropped in result.dropped)
    for kind, count in kinds.most_common():
        first = next(d for d in result.dropped if d.kind == kind)
        print(f"falls out     {count} x {kind}; such as {first.label}: {first.why}")


def _best(best: Option, story: Story) -> None:
    proof, found = best.proof, best.capacity
    print(f"\nchosen        {best.replicas} x {best.candidate.label}")
    print(f"flags         {' '.join(flags(settled(best)))}; output cap {output_cap(story.wish)}")
    if proof is not None:
        print(
            f"simulated     visible TTFT p50 {proof.visible_ttft.p50:.2f}, p90 {proof.visible_ttft.p90:.2f},"
            f" p99 {proof.visible_ttft.p99:.2f} s; TPOT p50 {proof.tpot.p50 * 1e3:.1f},"
            f" p90 {proof.tpot.p90 * 1e3:.1f} ms; {proof.cached_share:.0%} of prompts cached;"
            f" cache {proof.cache_used:.0%} used"
        )
    if found is not None:
        load, rate = found.load, found.requests_per_second
        print(
            f"goodput       {load.mean:.0f} in flight an engine ({load.low:.0f} to {load.high:.0f}, {load.runs} runs),"
            f" {rate.mean:.2f} requests a second ({rate.low:.2f} to {rate.high:.2f}); then {found.why}"
        )
    if best.extrapolated:
        print(f"extrapolated  {', '.join(best.extrapolated)}: measure before you buy")


def _money(money: Money | None) -> None:
    if money is None:
        return
    print(f"price         ${money.usd_per_hour:.2f} an hour, ${money.month_usd:,.0f} a month")
    rows = [(f"planned, {money.use:.0%}", *_three(money.planned))]
    rows += [(f"{prices.use:.0%}", *_three(prices)) for prices in money.at]
    output.table(("USE", "$/M INPUT", "$/M CACHED", "$/M OUTPUT"), rows)
    print(f"a session     ${money.per_session_usd:.4f}")
    for each in money.against:
        side = "cheaper here" if each.cheaper_at_home else "cheaper there"
        even = f"{each.break_even_tokens / 1e6:,.0f}M tokens a month" if each.break_even_tokens < 1e18 else "no volume"
        print(
            f"{each.hosted.name:13} ${each.month_usd:,.0f} a month for this load of {money.month_tokens / 1e6:,.0f}M"
            f" tokens: {side}; even from {even} on"
        )


def _three(prices: Prices) -> tuple[str, str, str]:
    return f"{prices.input_usd:.3f}", f"{prices.cached_usd:.4f}", f"{prices.output_usd:.3f}"


def _growth(story: Story) -> None:
    for at in story.growth:
        print(
            f"{at.day.isoformat()}    {at.factor:.1f} x today's load: {at.replicas} replicas ({at.cards} cards) are"
            f" full, first {at.limit}"
        )
    if story.needed:
        enough = "what is chosen suffices" if story.best and story.needed <= story.best.replicas else ""
        print(f"at the end    {enough or f'{story.needed} replicas'}")


def _explain(best: Option, story: Story) -> None:
    plan, wanted = best.candidate.plan, story.wish.wanted
    rows = [(t.name, f"{t.size_bytes / 2**30:.2f} GiB", t.source) for t in plan.budget.terms]
    rows += [
        ("blocks", f"{best.fleet.limits.blocks:,}", "cache at the long-run setting over the bytes of a block"),
        ("guess", f"{best.guess.in_flight}", "largest N with step(N) + N prefill / output within the bar"),
        ("takes", f"{best.each:.0f}", "discrete-event simulation: decode first, chunks, preemption, prefix cache"),
        ("band", f"{best.each_low:.0f} to {best.each_high:.0f}", "5th and 95th percentile of models left out"),
        ("replicas", f"{best.replicas}", f"{wanted.in_flight:.1f} in flight over what one takes, then simulated"),
        ("traffic", wanted.profile.name, wanted.profile.source),
    ]
    print()
    output.table(("FIGURE", "VALUE", "SOURCE"), rows)


def as_json(story: Story) -> JsonObject:
    """Write it for a program."""
    wish, wanted = story.wish, story.wish.wanted
    money = story.money
    return {
        "model": story.model,
        "profile": {"name": wanted.profile.name, "source": wanted.profile.source},
        "users": wish.users,
        "in_flight_per_user": wish.ratio,
        "in_flight": wanted.in_flight,
        "in_flight_why": wish.why,
        "bar": {
            "visible_ttft_p90_seconds": wanted.slo.visible_ttft_p90_seconds,
            "tpot_p90_seconds": wanted.slo.tpot_p90_seconds,
            "error_rate": wanted.slo.error_rate,
        },
        "searched": story.result.searched,
        "options": [_option(o, story.dates) for o in story.result.options],
        "unpriced": [_option(o, story.dates) for o in story.result.unpriced],
        "pareto": [o.candidate.label for o in story.result.pareto],
        "dropped": [{"label": d.label, "kind": d.kind, "why": d.why} for d in story.result.dropped],
        "output_cap_tokens": output_cap(wish),
        "money": None if money is None else _money_json(money),
        "growth": [
            {"day": m.day.isoformat(), "factor": m.factor, "replicas": m.replicas, "cards": m.cards, "limit": m.limit}
            for m in story.growth
        ],
    }


def _option(option: Option, dates: Mapping[str, str]) -> JsonObject:
    plan, proof, found = option.candidate.plan, option.proof, option.capacity
    own: list[Json] = [str(flag) for flag in flags(settled(option))]
    return {
        "place": option.place,
        "label": option.candidate.label,
        "model": option.candidate.variant.name,
        "gpu": plan.ask.gpu.name,
        "replicas": option.replicas,
        "cards": option.cards,
        "cards_low": option.cards_low,
        "cards_high": option.cards_high,
        "usd_per_hour": option.usd,
        "price_date": dates.get(plan.ask.gpu.name, ""),
        "flags": own,
        "in_flight_per_replica": option.each,
        "in_flight_per_replica_low": option.each_low,
        "in_flight_per_replica_high": option.each_high,
        "requests_per_second_per_engine": found.requests_per_second.mean if found else None,
        "full_first": found.why if found else option.guess.bound,
        "visible_ttft_seconds": _spread(proof.visible_ttft) if proof else None,
        "tpot_seconds": _spread(proof.tpot) if proof else None,
        "cached_share": proof.cached_share if proof else None,
        "extrapolated": list(option.extrapolated),
    }


def _spread(spread: Spread) -> JsonObject:
    return {"p50": spread.p50, "p90": spread.p90, "p99": spread.p99, "mean": spread.mean}


def _money_json(money: Money) -> JsonObject:
    return {
        "usd_per_hour": money.usd_per_hour,
        "month_usd": money.month_usd,
        "month_tokens": money.month_tokens,
        "use": money.use,
        "per_session_usd": money.per_session_usd,
        "per_million_usd": [
            {"use": p.use, "input": p.input_usd, "cached": p.cached_usd, "output": p.output_usd}
            for p in (money.planned, *money.at)
        ],
        "hosted": [
            {
                "name": a.hosted.name,
                "month_usd": a.month_usd,
                "per_million_usd": a.per_million_usd,
                "break_even_tokens": a.break_even_tokens if a.break_even_tokens < 1e18 else None,
                "cheaper_at_home": a.cheaper_at_home,
            }
            for a in money.against
        ],
    }
