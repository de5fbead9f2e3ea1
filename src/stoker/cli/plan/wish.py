"""What is the load, and what is the bar? From a use case, a trace, and a number of people."""

from dataclasses import dataclass
from math import ceil, log2
from pathlib import Path
from typing import cast

from stoker.base.errors import Fault, Invalid
from stoker.cli.settings import Settings
from stoker.decide.goodput.search import Wanted
from stoker.drivers.figures import given
from stoker.drivers.ledger.sqlite import Ledger
from stoker.predict.batching.score import Slo
from stoker.predict.traffic import profile as profiles
from stoker.predict.traffic import trace
from stoker.predict.traffic.mix import Mix, mix
from stoker.predict.traffic.profile import Profile
from stoker.predict.traffic.sources import shorter
from stoker.spec import manifest
from stoker.spec.usecase import PRESETS, UseCaseSpec

_ENOUGH = 200  # requests in the ledger, of at least so many callers, before their habits count
_CALLERS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A load with the words that explain it."""

    wanted: Wanted
    users: int
    ratio: float  # requests in flight for each user
    why: str
    context_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A kind of traffic and its bar."""

    profile: Profile
    use: UseCaseSpec
    declared: bool = False  # by a manifest


def case(name: str) -> Case:
    """Find a use case: a manifest, a trace, or a name."""
    path = Path(name)
    if path.suffix in (".csv", ".jsonl"):
        found = trace.profile(given.traffic(path), name=path.stem)
        return Case(profile=found, use=UseCaseSpec(preset="chat").resolved())
    if path.suffix in (".yaml", ".yml", ".json"):
        use = _declared(path)
        return Case(profile=case(use.profile or "chat").profile, use=use, declared=True)
    found = profiles.find(name)
    preset = found.preset if name not in PRESETS else name
    return Case(profile=found, use=UseCaseSpec.model_validate({"preset": preset}).resolved())


def _declared(path: Path) -> UseCaseSpec:
    try:
        text = path.read_text()
    except OSError as error:
        raise Invalid(Fault(message=error.strerror or str(error), file=str(path))) from error
    specs = [d.spec for d in manifest.load(text, file=str(path)) if d.kind == "UseCase"]
    if len(specs) != 1:
        raise Invalid(Fault(message=f"it has {len(specs)} UseCases, and one is needed", file=str(path)))
    return cast("UseCaseSpec", specs[0]).resolved()


def wish(
    found: Case, settings: Settings, *, users: int, in_flight: float, context: int, ttft: float, pace: float
) -> Wish:
    """Put the load together. 0: not given."""
    bar = found.use.bar
    if bar is None or users < 0 or in_flight < 0 or not (users or in_flight):
        hint = "--users 50, or --in-flight 12 if you know it"
        raise Invalid(Fault(message="say how large the load is", field="--users, --in-flight", hint=hint))
    context = context or _context(found)
    profile = shorter(found.profile, context)
    slo = Slo(
        visible_ttft_p90_seconds=ttft or bar.visible_ttft_p90_seconds,
        tpot_p90_seconds=1 / (pace or bar.tokens_per_second_per_user),
        error_rate=bar.error_rate,
    )
    sample = mix(profile)
    ratio, why = _ratio(profile, sample, slo, settings)
    sessions = 0
    if not in_flight:
        in_flight = users * ratio
        sessions = ceil(users * profile.active * profile.parallel) if profile.gap_seconds.mean else 0
    else:
        why = "as you said"
    wanted = Wanted(profile=profile, mix=sample, slo=slo, in_flight=max(1.0, in_flight), sessions=sessions)
    return Wish(wanted=wanted, users=users, ratio=ratio, why=why, context_tokens=context)


def _context(found: Case) -> int:
    """What a manifest says; else enough for 99 of 100 requests, and never less than the preset."""
    told = found.use.context_tokens or 0
    if found.declared:
        return told
    longest = mix(found.profile).whole_p99
    return max(told, 1 << ceil(log2(max(2.0, longest))))


def _ratio(profile: Profile, sample: Mix, slo: Slo, settings: Settings) -> tuple[float, str]:
    """Requests in flight for each user: from the own ledger where it tells enough, else the profile's."""
    known = _ledger(settings)
    if known is not None:
        return known
    service = slo.visible_ttft_p90_seconds / 2 + (sample.output - sample.hidden) * slo.tpot_p90_seconds
    ratio = profile.in_flight(service)
    waits = service / (service + sample.gap_seconds) if service else 0.0
    why = (
        f"assumed by profile {profile.name}: {profile.active:.0%} of the users at work in the busiest hour,"
        f" {profile.parallel:g} sessions each with subagents, {waits:.0%} of their time in flight"
    )
    return ratio, why


def _ledger(settings: Settings) -> tuple[float, str] | None:
    if not settings.layout.ledger.exists():
        return None
    ledger = Ledger(settings.layout.ledger)
    try:
        rows = ledger.usage(("hour", "caller"))
    finally:
        ledger.close()
    requests = sum(_number(row.get("requests")) for row in rows)
    callers = {row.get("caller") for row in rows}
    if requests < _ENOUGH or len(callers) < _CALLERS:
        return None
    hours: dict[object, float] = {}
    for row in rows:
        hours[row.get("hour")] = hours.get(row.get("hour"), 0.0) + _number(row.get("seconds"))
    busiest = max(hours.values()) / 3600
    why = f"from your own ledger: {busiest:.1f} requests in flight in the busiest hour, {len(callers)} callers"
    return busiest / len(callers), why


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
