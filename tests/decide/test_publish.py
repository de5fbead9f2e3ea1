"""What the gateways may know, and how their acknowledgement is read."""

from stoker.decide.acknowledge import Gateways, Load, acknowledged, callers_acknowledged, load
from stoker.decide.publish import Labelled, Offer, Selector, publish
from stoker.facts.live import EndpointLoad, Live
from stoker.facts.routes import Endpoint, State

NOW = 1_000.0
SHOWN = {"stoker.dev/exposed": "true"}


def offer(
    name: str, namespace: str = "default", *, aliases: tuple[str, ...] = (), labels: dict[str, str] = SHOWN
) -> Offer:
    return Offer(
        namespace=namespace, name=name, labels=labels, selectors=(Selector(labels={"app": name}),), aliases=aliases
    )


def endpoint(name: str, app: str, state: State = State.SERVE, namespace: str = "default") -> Labelled:
    made = Endpoint(name=f"{namespace}/{name}", incarnation="u-1", state=state, origin="http://127.0.0.1:1")
    return Labelled(endpoint=made, namespace=namespace, labels={"app": app})


def test_a_service_is_reached_by_its_names_and_only_by_its_own_endpoints() -> None:
    got = publish([offer("m", aliases=("gpt-4o",))], [endpoint("a", "m"), endpoint("b", "other")], exposed=[SHOWN])

    assert got.services[0].models == ("default/m", "m", "gpt-4o")
    assert got.services[0].targets[0].endpoints == ("default/a",)
    assert [e.name for e in got.endpoints] == ["default/a"]


def test_an_empty_selector_exposes_nothing_and_says_so() -> None:
    got = publish([offer("m")], [endpoint("a", "m")], exposed=[{}])

    assert got.services == ()
    assert "default/m" in got.hidden


def test_a_name_that_two_services_have_belongs_to_neither() -> None:
    got = publish([offer("m", "a", aliases=("x",)), offer("m", "b", aliases=("x",))], [], exposed=[SHOWN])

    assert [s.models for s in got.services] == [("a/m",), ("b/m",)]


def test_an_alias_never_takes_a_service_s_own_name() -> None:
    got = publish([offer("m"), offer("n", aliases=("m",))], [], exposed=[SHOWN])

    assert got.services[1].models == ("default/n", "n")


def test_endpoints_of_another_namespace_are_not_selected() -> None:
    got = publish([offer("m", "a")], [endpoint("x", "m", namespace="b")], exposed=[SHOWN])

    assert got.services[0].targets[0].endpoints == ()


def test_a_replica_that_is_being_proven_is_there_for_probes_even_without_a_service() -> None:
    got = publish([], [endpoint("a", "m", State.PROBE), endpoint("b", "m", State.SERVE)], exposed=[SHOWN])

    assert [e.name for e in got.endpoints] == ["default/a"]


def worker(generation: int, at: float = NOW, running: int = 0, token: float = 0.0) -> Live:
    seen = EndpointLoad(name="e", incarnation="u-1", running=running, last_token_at=token)
    return Live(
        worker=f"w{generation}{at}",
        pid=1,
        at=at,
        routes_generation=generation,
        callers_generation=generation,
        endpoints=(seen,),
    )


def test_a_generation_is_acknowledged_only_by_all_live_workers() -> None:
    both = Gateways(workers=(worker(5), worker(4)), expected=2)

    assert acknowledged(both, 4, now=NOW)
    assert not acknowledged(both, 5, now=NOW)
    assert not callers_acknowledged(both, 5, now=NOW)
    assert not acknowledged(Gateways(workers=(worker(5),), expected=2), 5, now=NOW)  # one has not spoken yet
    assert not acknowledged(Gateways(workers=(), expected=0), 0, now=NOW)


def test_stale_is_unknown_never_zero() -> None:
    stale = Gateways(workers=(worker(5, running=1), worker(5, at=NOW - 4)), expected=2)

    assert not acknowledged(stale, 5, now=NOW)
    assert load(stale, "e", "u-1", now=NOW) is None


def test_load_adds_up_over_workers_and_counts_one_incarnation() -> None:
    both = Gateways(workers=(worker(1, running=2, token=5.0), worker(2, running=1, token=9.0)), expected=2)

    assert load(both, "e", "u-1", now=NOW) == Load(running=3, waiting=0, last_token_at=9.0)
    assert load(both, "e", "u-2", now=NOW) == Load(running=0, waiting=0, last_token_at=0.0)
