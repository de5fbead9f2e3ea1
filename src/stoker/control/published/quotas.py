"""Which limits do the gateways keep? As callers, services and the gateway have them in their manifests."""

from collections.abc import Sequence

from stoker.decide.conditions import Condition, no, yes
from stoker.facts import routes
from stoker.facts.live import Live
from stoker.facts.routes import Limits
from stoker.spec.caller import Amounts
from stoker.spec.gateway import SharedLimits
from stoker.spec.service import ServiceLimits


def of(amounts: Amounts) -> Limits:
    """Read the limits of a caller, over all models or of one."""
    return Limits(
        requests_per_minute=amounts.requests_per_minute,
        tokens_per_minute=amounts.tokens_per_minute,
        tokens_per_day=amounts.tokens_per_day,
        concurrent=amounts.concurrent,
        max_output_tokens=amounts.max_output_tokens,
    )


def of_service(limits: ServiceLimits) -> Limits:
    """Read the limits of a service over all callers. The cap of its output is no part of them: it binds every call."""
    return Limits(
        requests_per_minute=limits.requests_per_minute,
        tokens_per_minute=limits.tokens_per_minute,
        tokens_per_day=limits.tokens_per_day,
        concurrent=limits.max_concurrent or 0,
    )


def kept(workers: Sequence[Live]) -> Condition:
    """Tell whether the gateways keep limits as they should be kept."""
    problems = sorted({worker.limits_problem for worker in workers} - {""})
    if not problems:
        return yes("Limits", "Kept")
    return no(
        "Limits",
        "KeptInPart",
        "; ".join(problems),
        action="see that the store of spec.sharedLimits answers and that the ledger can be read; no restart is needed",
    )


def shared(store: SharedLimits | None) -> routes.SharedLimits | None:
    """Read where limits are shared with other machines."""
    if store is None:
        return None
    return routes.SharedLimits(
        url=store.url,
        share=store.share,
        credential_file=store.credential_file,
        ca_file=store.ca_file,
        prefix=store.prefix,
        timeout=store.timeout,
    )
