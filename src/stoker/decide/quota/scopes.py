"""Under which limits does a request come? Its caller's, its model's, and its caller's at this model: all hold."""

from collections.abc import Iterable
from typing import Final

from stoker.decide.quota.level import Demand
from stoker.facts.routes import Caller, Limits, Service

UNLIMITED: Final = Limits()


def names(caller: str, service: str) -> tuple[str, str, str]:
    """Name the scopes of a caller, of a model and of both. No caller's name has a space in it."""
    return caller, f"model {service}", f"{caller} at {service}"


def demands(caller: Caller, service: Service) -> tuple[Demand, ...]:
    """Say what a request must be let in by; nothing where there is no limit."""
    own, models, both = names(caller.name, service.name)
    found = (
        Demand(own, caller.limits, f"caller {caller.name}"),
        Demand(both, caller.models.get(service.name, UNLIMITED), f"caller {caller.name} at model {service.name}"),
        Demand(models, service.limits, f"model {service.name}", model=True),
    )
    return tuple(demand for demand in found if rates(demand.limits))


def rates(limits: Limits) -> bool:
    """Whether anything must be counted; the output cap binds each call by itself."""
    return bool(limits.requests_per_minute or limits.tokens_per_minute or limits.tokens_per_day or limits.concurrent)


def by_scope(used: Iterable[tuple[str, str, int]]) -> dict[str, int]:
    """Sum tokens of callers at services for every scope that they count for."""
    sums: dict[str, int] = {}
    for caller, service, tokens in used:
        for name in names(caller, service):
            sums[name] = sums.get(name, 0) + tokens
    return sums
