"""Tables and properties of decide/roll."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.decide.roll import Create, Decision, Replica, Retire, Wanted, roll

NOW = 1_000.0


def wanted(replicas: int = 1, template: str = "new", **more: bool | float) -> Wanted:
    return Wanted(**{"replicas": replicas, "hash": template, "recreate": False, **more})  # type: ignore[arg-type]


def replica(name: str, template: str = "new", index: int = 0, **more: bool) -> Replica:
    return Replica(name=name, index=index, hash=template, **{"serving": True, **more})


def decide(w: Wanted, *replicas: Replica, since: float = 0.0) -> Decision:
    return roll(w, replicas, since=since, now=NOW)


@pytest.mark.parametrize(
    ("want", "replicas", "create", "retire"),
    [
        pytest.param(wanted(2), (), (0, 1), (), id="nothing there: all are made"),
        pytest.param(wanted(1), (replica("a"),), (), (), id="as wanted: nothing"),
        pytest.param(wanted(1), (replica("old", "old"),), (0,), (), id="rolling: the new one comes first"),
        pytest.param(
            wanted(1),
            (replica("old", "old"), replica("n", serving=False)),
            (),
            (),
            id="rolling: the old one stays until the new serves",
        ),
        pytest.param(
            wanted(1), (replica("old", "old"), replica("n")), (), ("old",), id="rolling: now the old one goes"
        ),
        pytest.param(
            wanted(1, recreate=True), (replica("old", "old"),), (), ("old",), id="recreate: the old one goes first"
        ),
        pytest.param(
            wanted(1, recreate=True),
            (replica("old", "old", retired=True),),
            (),
            (),
            id="recreate: wait for the whole subtree",
        ),
        pytest.param(wanted(1, recreate=True), (), (0,), (), id="recreate: then the new one comes"),
        pytest.param(
            wanted(1, "old"),
            (replica("old", "old"), replica("n", "new", serving=False)),
            (),
            ("n",),
            id="revert in mid-rollout keeps what still serves",
        ),
        pytest.param(
            wanted(1),
            (replica("a", index=0, serving=False), replica("b", index=1)),
            (),
            ("a",),
            id="scaling down takes the one that does not serve",
        ),
        pytest.param(
            wanted(1),
            (replica("a", index=0), replica("b", index=1)),
            (),
            ("b",),
            id="scaling down takes the highest index",
        ),
        pytest.param(wanted(0), (replica("a"),), (), ("a",), id="to nothing"),
        pytest.param(
            wanted(1),
            (replica("gone", index=0, retired=True),),
            (1,),
            (),
            id="an index that still drains is not used again",
        ),
        pytest.param(
            wanted(2),
            (replica("dead", "old", serving=False), replica("old", "old", index=1)),
            (0,),
            ("dead",),
            id="an old one that does not serve goes at once",
        ),
        pytest.param(wanted(1, deleted=True), (replica("a"),), (), ("a",), id="deletion drains"),
    ],
)
def test_roll(want: Wanted, replicas: tuple[Replica, ...], create: tuple[int, ...], retire: tuple[str, ...]) -> None:
    got = decide(want, *replicas)

    assert got.create == tuple(Create(index=i) for i in create)
    assert got.retire == tuple(Retire(name=n) for n in retire)


def test_success_is_said_only_when_the_old_have_gone() -> None:
    rolling = decide(wanted(1), replica("n"), replica("old", "old", retired=True))
    done = decide(wanted(1), replica("n"))

    assert {c.type: c.status for c in rolling.conditions}["Ready"] == "False"
    assert {c.type: c.status for c in rolling.conditions}["Available"] == "True"
    assert {c.type: c.status for c in done.conditions} == {"Available": "True", "Progressing": "True", "Ready": "True"}


def test_a_rollout_that_takes_too_long_says_so_and_keeps_what_serves() -> None:
    late = decide(wanted(1, deadline=60.0), replica("old", "old"), replica("n", serving=False), since=NOW - 61)
    progressing = next(c for c in late.conditions if c.type == "Progressing")

    assert progressing.reason == "ProgressDeadlineExceeded"
    assert progressing.action
    assert late.retire == ()


def test_a_deleted_deployment_is_gone_when_its_replicas_are() -> None:
    assert not decide(wanted(1, deleted=True), replica("a", retired=True)).gone
    assert decide(wanted(1, deleted=True)).gone


def test_an_old_one_of_which_not_every_worker_has_told_stays_until_others_serve() -> None:
    """The controller came back a moment ago; what it has not heard of yet may be all that serves."""
    want = Wanted(replicas=1, hash="new", recreate=False)
    silent = Replica(name="a", index=0, hash="old", serving=False, offered=True)
    loading = Replica(name="b", index=0, hash="new", serving=False)
    assert roll(want, [silent, loading], since=NOW, now=NOW).retire == ()
    ready = Replica(name="b", index=0, hash="new", serving=True, offered=True)
    told = Replica(name="a", index=0, hash="old", serving=True, offered=True)
    assert [r.name for r in roll(want, [told, ready], since=NOW, now=NOW).retire] == ["a"]
    down = [silent, Replica(name="c", index=1, hash="old", serving=True, offered=True)]
    assert [r.name for r in roll(Wanted(replicas=1, hash="old", recreate=False), down, since=NOW, now=NOW).retire] == [
        "a"
    ]


@given(
    count=st.integers(0, 4),
    recreate=st.booleans(),
    surge=st.integers(0, 2),
    unavailable=st.integers(0, 2),
    start=st.lists(st.tuples(st.sampled_from(["new", "old", "older"]), st.booleans()), max_size=6),
)
def test_every_rollout_reaches_a_fixed_point_and_never_leaves_nothing(
    *, count: int, recreate: bool, surge: int, unavailable: int, start: list[tuple[str, bool]]
) -> None:
    if surge == 0 and unavailable == 0:
        surge = 1  # refused by the spec: nothing could ever move
    want = Wanted(replicas=count, hash="new", recreate=recreate, surge=surge, unavailable=unavailable)
    there = [Replica(name=f"s{i}", index=i, hash=h, serving=s) for i, (h, s) in enumerate(start)]
    made = 0
    for _ in range(40):
        before = sum(r.serving for r in there)
        got = roll(want, there, since=0.0, now=NOW)
        if got.create == () and got.retire == () and all(r.serving for r in there):
            break
        going = {r.name for r in got.retire}
        there = [r for r in there if r.name not in going]
        for c in got.create:
            made += 1
            there.append(Replica(name=f"n{made}", index=c.index, hash="new", serving=False))
        if not recreate and count:
            left = sum(r.serving for r in there)
            assert left >= min(before, count - unavailable)
        # Everything that was started comes up before the next pass.
        there = [Replica(name=r.name, index=r.index, hash=r.hash, serving=True) for r in there]

    assert [r.hash for r in there] == ["new"] * count
    assert len({r.index for r in there}) == count
