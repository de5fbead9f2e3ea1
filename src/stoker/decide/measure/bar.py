"""Does one request meet the bar? Written down before the run: predicates on a request, and how many must meet them.

1. A bar of nine in ten is a predicate on each request that 90 % of the *scheduled* requests must meet. What was
   refused, cut, empty or broken does not meet it, however fast it was.
2. The share of failed requests has a ceiling of its own: 10 % may be slow, they may not all be errors.
3. x tokens a second for each user is TPOT ≤ 1/x, for answers of at least two tokens.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from stoker.base.errors import Fault, Invalid, nearest
from stoker.base.json import Json
from stoker.decide.measure.classes import GOOD, Class
from stoker.decide.measure.sample import Sample

METRICS: Final = ("first_byte", "ttft", "visible_ttft", "tpot", "longest_gap", "e2e")
_PACE: Final = "tokens_per_second_per_user"
_UNSEEN: Final = float("inf")


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """What good means. ``limits``: a metric and its most seconds."""

    limits: tuple[tuple[str, float], ...] = ()
    share: float = 0.9  # of the scheduled requests that must meet every limit
    error_rate: float = 0.01
    length_is_good: bool = True
    name: str = ""

    def met(self, sample: Sample) -> bool:
        """Tell whether one request meets it."""
        if sample.kind not in GOOD or (sample.kind is Class.LENGTH and not self.length_is_good):
            return False
        return all(metric(sample, name) <= most for name, most in self.limits)

    def deadline_seconds(self, output_tokens: int) -> float:
        """Say after how long a request of so many tokens cannot meet it any more; infinite where nothing says so."""
        limits = dict(self.limits)
        found = limits.get("e2e", _UNSEEN)
        first = limits.get("visible_ttft", limits.get("ttft"))
        if first is not None and "tpot" in limits:
            found = min(found, first + output_tokens * limits["tpot"])
        return found

    @property
    def ttft_seconds(self) -> float:
        """The limit that a late generator would spoil first; 0 where there is none."""
        limits = dict(self.limits)
        return min((limits[name] for name in ("first_byte", "ttft", "visible_ttft") if name in limits), default=0.0)

    @property
    def words(self) -> str:
        """Write it in a line."""
        told = [f"{name} ≤ {most:g} s" for name, most in self.limits]
        return f"{self.share:.0%} of requests: {', '.join(told) or 'whole answers'}; failed ≤ {self.error_rate:.1%}"


def metric(sample: Sample, name: str) -> float:
    """Read a metric of a request; infinite where that point was never reached, 0 where it does not apply."""
    if name == "tpot":
        return sample.tpot_seconds or 0.0
    if name == "longest_gap":
        return sample.gaps.longest
    found = {
        "first_byte": sample.first_byte_seconds,
        "ttft": sample.first_token_seconds,
        "visible_ttft": sample.first_visible_seconds,
        "e2e": sample.total_seconds,
    }[name]
    return found or _UNSEEN


def read(fields: Mapping[str, Json], *, file: str, name: str = "") -> Bar:
    """Read ``visible_ttft_p90_seconds: 2`` and the like; raises Invalid with the nearest metric."""
    limits: list[tuple[str, float]] = []
    shares: dict[float, str] = {}
    errors, length = 0.01, True
    for key, value in fields.items():
        word = _snake(key)
        if word == "length_is_good" and isinstance(value, bool):
            length = value
            continue
        number = _number(value, key, file)
        if word == "error_rate":
            errors = number
        elif word == "share":
            shares[number] = key
        elif word == _PACE:
            limits.append(("tpot", 1 / number if number else _UNSEEN))
        elif word != "eval_floor":
            limit, share = _limit(word, key, file)
            limits.append((limit, number))
            shares |= {share: key} if share else {}
    return _bar(limits, shares, errors, length_is_good=length, place=(file, name))


def _bar(
    limits: Sequence[tuple[str, float]],
    shares: Mapping[float, str],
    errors: float,
    *,
    length_is_good: bool,
    place: tuple[str, str],
) -> Bar:
    file, name = place
    if len(shares) > 1:
        hint = "a bar is met by a request or not, so all its limits share one quantile"
        raise Invalid(Fault(message=f"{' and '.join(shares.values())} ask for different shares", file=file, hint=hint))
    share = next(iter(shares), 0.9)
    if not 0 < share < 1 or not 0 <= errors <= 1:
        raise Invalid(Fault(message="shares lie between 0 and 1", file=file, hint="share: 0.95, error_rate: 0.01"))
    if not limits:
        raise Invalid(Fault(message="it has no limit", file=file, hint="such as visible_ttft_p90_seconds: 2"))
    return Bar(limits=tuple(limits), share=share, error_rate=errors, length_is_good=length_is_good, name=name)


def _limit(word: str, key: str, file: str) -> tuple[str, float]:
    """Take ``tpot_p90_seconds`` apart: the metric, and the share of requests, 0 where it is not said."""
    stem = word.removesuffix("_seconds")
    metric_name, mark, quantile = stem.rpartition("_p")
    if not (mark and quantile.isdigit()):
        metric_name, quantile = stem, ""
    if metric_name in METRICS and word.endswith("_seconds"):
        return metric_name, float(f"0.{quantile}") if quantile else 0.0
    known = [f"{each}{'_p' + quantile if quantile else ''}_seconds" for each in METRICS]
    known += [_PACE, "error_rate", "share", "length_is_good"]
    hint = nearest(word, known) or f"one of {', '.join(known)}"
    raise Invalid(Fault(message="there is no such metric", file=file, field=key, hint=hint))


def _snake(word: str) -> str:
    """Read the spelling of manifests, too: visibleTTFTP90 and camel case."""
    known = {"tokensPerSecondPerUser": _PACE, "errorRate": "error_rate", "evalFloor": "eval_floor"}
    if word in known:
        return known[word]
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in word)


def _number(value: Json, key: str, file: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise Invalid(Fault(message=f"'{value}' is no number from 0 on", file=file, field=key))
    return float(value)
