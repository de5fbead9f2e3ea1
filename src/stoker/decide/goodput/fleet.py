"""What is simulated: a planned configuration, so many times, behind a policy."""

from dataclasses import dataclass, replace
from random import Random

from stoker.decide.goodput.behind import Policy, policy
from stoker.predict import fits
from stoker.predict.batching import score as scores
from stoker.predict.batching.loop import Source, run
from stoker.predict.batching.machine import Machine
from stoker.predict.batching.request import Limits
from stoker.predict.batching.score import Outside, Score, Slo
from stoker.predict.coefficients import Speed
from stoker.predict.fits import Plan
from stoker.predict.timing.speed import steps
from stoker.predict.timing.steps import Steps
from stoker.predict.traffic.profile import Profile
from stoker.predict.traffic.sources import Closed, Open

ROUNDS = 5  # requests of each client: the first round warms up and is not judged
_FEWEST = 60  # requests: of fewer a ninth decile says little


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Engines that are all alike; ``engines`` counts replicas times their lanes."""

    limits: Limits
    step: Steps
    engines: int = 1
    policy: Policy = "PrefixCache"


def build(plan: Plan, table: Speed, profile: Profile, *, replicas: int = 1) -> Fleet | None:
    """A plan under a profile's lengths; None: it does not start, or no measured row has its engine."""
    typical = round(profile.prompt.mean + profile.output.mean / 2)
    typical = min(typical, plan.ask.context_tokens)
    pool = fits.pool(plan, typical)
    output = max(1, min(round(profile.output.mean), typical - 1))
    step = steps(plan, table, prompt=max(1, typical - output), output=output)
    if pool is None or step is None:
        return None
    limits = Limits(
        blocks=max(1, int(pool.requests * typical) // pool.block_tokens // plan.ask.split.pipeline),
        block_tokens=pool.block_tokens,
        batch_tokens=max(plan.load.batch_tokens, plan.load.sequences + 1),
        sequences=plan.load.sequences,
        context_tokens=plan.ask.context_tokens,
    )
    return Fleet(limits=limits, step=step, engines=replicas * lanes(plan))


def lanes(plan: Plan) -> int:
    """Batches that one replica has under way at once: one a data parallel rank, and one a pipeline stage.

    Stages share what a batch takes, and each then works on another batch: a token takes as long as over all stages.
    """
    return plan.ask.split.data * plan.ask.split.pipeline


def closed(fleet: Fleet, profile: Profile, slo: Slo, *, clients: int, seed: int, pauses: bool = False) -> Score:
    """So many clients, each with a request under way (or between two, with ``pauses``)."""
    rng = Random(seed)  # noqa: S311 -- a load to try, no secret
    return _go(fleet, Closed(profile, clients, rng, pauses=pauses), slo, requests=ROUNDS * clients, rng=rng)


def opened(fleet: Fleet, profile: Profile, slo: Slo, *, per_second: float, seed: int, requests: int = 400) -> Score:
    """So many requests a second, whatever becomes of them."""
    rng = Random(seed)  # noqa: S311 -- as above
    return _go(fleet, Open(profile, per_second, rng, requests=requests), slo, requests=requests, rng=rng)


def played(fleet: Fleet, source: Source, slo: Slo, *, requests: int, seed: int) -> Score:
    """Any other source, such as a trace."""
    return _go(fleet, source, slo, requests=requests, rng=Random(seed))  # noqa: S311 -- as above


def _go(fleet: Fleet, source: Source, slo: Slo, *, requests: int, rng: Random) -> Score:
    machines = [Machine(fleet.limits, fleet.step) for _ in range(fleet.engines)]
    requests = max(requests, _FEWEST)
    outside = Outside(base=fleet.step.base, stretch=fleet.step.stretch)
    done = run(machines, source, policy(machines, fleet.policy, rng), requests=requests)
    return scores.score(done, machines, slo, skip=requests // ROUNDS, outside=outside)


def larger(fleet: Fleet, engines: int) -> Fleet:
    """The same with another number of engines."""
    return replace(fleet, engines=engines)
