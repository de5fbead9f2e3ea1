"""When does `stoker up` go on waiting, and when does it say what a person must do?"""

import pytest

from stoker.base.errors import Invalid
from stoker.base.json import JsonObject
from stoker.cli import preflight
from stoker.cli.waiting import LADDER, State, rungs, state


def resource(name: str, *conditions: tuple[str, str, str], deployment: str = "", failures: int = 0) -> JsonObject:
    told: list[JsonObject] = [
        {"type": kind, "status": status, "reason": reason, "message": "m", "nextAction": "a"}
        for kind, status, reason in conditions
    ]
    return {
        "metadata": {"name": name},
        "spec": {"deployment": deployment},
        "status": {"conditions": told, "memory": {"failures": failures}},  # type: ignore[dict-item]
    }


READY = resource("a", ("Ready", "True", "AllReplicasReady"))
WAITING = resource("b", ("Ready", "False", "ReplicasNotReady"))


@pytest.mark.parametrize(
    ("replicas", "want"),
    [
        pytest.param([], State(ready=("a",), coming=("b",)), id="no replica yet"),
        pytest.param(
            [resource("r", ("CacheReady", "False", "Fetching"), deployment="b")],
            State(ready=("a",), coming=("b",)),
            id="fetching goes on",
        ),
        pytest.param(
            [resource("r", ("Preflighted", "False", "LicenceNotAccepted"), deployment="b")],
            State(ready=("a",), stuck={"b": "Preflighted: m; next: a"}),
            id="a person must act",
        ),
        pytest.param(
            [resource("r", ("Started", "False", "OutOfMemory"), deployment="b", failures=2)],
            State(ready=("a",), coming=("b",)),
            id="two crashes: the next may hold",
        ),
        pytest.param(
            [resource("r", ("Started", "False", "OutOfMemory"), deployment="b", failures=3)],
            State(ready=("a",), stuck={"b": "Started: m; next: a"}),
            id="three in a row: it loops",
        ),
        pytest.param(
            [resource("r", ("Preflighted", "False", "ModelRefused"), deployment="other")],
            State(ready=("a",), coming=("b",)),
            id="somebody else's trouble",
        ),
    ],
)
def test_state(replicas: list[JsonObject], want: State) -> None:
    assert state([READY, WAITING], replicas) == want


def test_only_what_was_asked_for_counts() -> None:
    assert state([READY, WAITING], [], asked="a") == State(ready=("a",))


def test_rungs_name_the_first_that_does_not_hold() -> None:
    up = [(kind, "True", "Proven") for kind in LADDER[:5]]
    found = rungs([resource("r", *up, ("Loaded", "False", "Loading"))])

    assert (found[0].done, found[0].what) == (5, "Loaded: m")


@pytest.mark.parametrize("listen", ["8080", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000"])
def test_what_is_no_address_is_refused(listen: str) -> None:
    with pytest.raises(Invalid, match="is no address"):
        preflight.address(listen, insecure=True)


@pytest.mark.parametrize("listen", ["0.0.0.0:80", "10.0.0.1:80", "[::]:80", "example.org:80"])
def test_beyond_loopback_needs_a_flag_that_says_so(listen: str) -> None:
    with pytest.raises(Invalid, match="insecure"):
        preflight.address(listen, insecure=False)
    preflight.address(listen, insecure=True)


@pytest.mark.parametrize("listen", ["127.0.0.1:80", "localhost:80", "[::1]:80", "127.8.8.8:80"])
def test_loopback_is_fine(listen: str) -> None:
    preflight.address(listen, insecure=False)


@pytest.mark.parametrize(
    ("model", "source"),
    [
        ("", {"name": "smollm2-135m-instruct"}),
        ("smollm2-135m-instruct", {"name": "smollm2-135m-instruct"}),
        ("Org/Repo.Name", {"repo": "Org/Repo.Name"}),
        ("Org/Repo@0123abc", {"repo": "Org/Repo", "revision": "0123abc"}),
    ],
)
def test_a_model_is_a_name_or_a_repository(model: str, source: dict[str, str]) -> None:
    made = preflight.manifests(model, exposed={}, accept=False, port=1)

    assert all(f'"{k}":"{v}"' in str(made["sources"]) for k, v in source.items())


def test_a_near_miss_names_the_model_that_was_meant() -> None:
    with pytest.raises(Invalid, match="did you mean 'smollm2-135m-instruct'"):
        preflight.manifests("smollm2-135m-instrct", exposed={}, accept=False, port=1)


def test_what_was_said_of_an_earlier_spec_is_over() -> None:
    said: JsonObject = {"type": "Ready", "status": "True", "reason": "AllReplicasReady", "observedGeneration": 1}
    changed: JsonObject = {
        "metadata": {"name": "a", "generation": 2},
        "status": {"conditions": [said], "templateHash": "old"},
    }
    refused = resource("r", ("Preflighted", "False", "LicenceNotAccepted"), deployment="a")
    assert state([changed], [refused]) == State(coming=("a",))

    seen: JsonObject = {**said, "status": "False", "observedGeneration": 2}
    changed["status"] = {"conditions": [seen], "templateHash": "new"}
    refused["spec"] = {"deployment": "a", "templateHash": "old"}
    assert state([changed], [refused]) == State(coming=("a",))
    refused["spec"] = {"deployment": "a", "templateHash": "new"}
    assert state([changed], [refused]) == State(stuck={"a": "Preflighted: m; next: a"})
