"""What manifests say about limits reaches the gateways as it was meant, and what is dangerous is refused."""

import pytest
from pydantic import ValidationError

from stoker.control.published import quotas
from stoker.control.routing import _caller
from stoker.drivers.store.base import Resource
from stoker.facts.live import Live
from stoker.facts.routes import Callers, Limits, Routes, SharedLimits, open_callers, open_routes, seal
from stoker.spec.gateway import InferenceGatewaySpec
from stoker.spec.service import ModelServiceSpec

STORE = {"url": "rediss://limits.test:6380/2", "share": 0.25}


def shared(**spec: object) -> SharedLimits | None:
    made = InferenceGatewaySpec.model_validate({"sharedLimits": {**STORE, **spec}}, context="manifest")
    return open_routes(seal(Routes(generation=1, shared_limits=quotas.shared(made.shared_limits)))).shared_limits


def test_limits_of_a_caller_and_of_single_models_arrive() -> None:
    limits = {
        "requestsPerMinute": 1,
        "tokensPerMinute": 2,
        "tokensPerDay": 3,
        "concurrent": 4,
        "maxOutputTokens": 5,
        "models": {"ns/chat": {"tokensPerDay": 6}},
    }
    made = _caller(Resource(kind="Caller", name="ann", spec={"limits": limits, "priority": -3}))  # type: ignore[dict-item]
    (ann,) = open_callers(seal(Callers(generation=1, callers=(made,)))).callers

    assert ann.limits == Limits(
        requests_per_minute=1, tokens_per_minute=2, tokens_per_day=3, concurrent=4, max_output_tokens=5
    )
    assert ann.models == {"ns/chat": Limits(tokens_per_day=6)}
    assert ann.priority == -3


def test_limits_of_a_service_arrive() -> None:
    limits = {"requestsPerMinute": 1, "tokensPerMinute": 2, "tokensPerDay": 3, "maxConcurrent": 4, "maxQueued": 0}
    endpoints = [{"selector": {"matchLabels": {"a": "b"}}}]
    spec = ModelServiceSpec.model_validate({"endpoints": endpoints, "limits": limits}, context="manifest")

    assert quotas.of_service(spec.limits) == Limits(
        requests_per_minute=1, tokens_per_minute=2, tokens_per_day=3, concurrent=4
    )
    assert spec.limits.max_queued == 0  # none may wait, which is not the same as nothing said


def test_the_store_of_several_machines_arrives() -> None:
    assert quotas.shared(None) is None
    assert shared(credentialFile="keys/p", caFile="ca.pem", prefix="team", timeout="50ms") == SharedLimits(
        url=STORE["url"], share=0.25, credential_file="keys/p", ca_file="ca.pem", prefix="team", timeout=0.05
    )


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        pytest.param({"url": "http://x/0"}, "write redis://", id="another protocol"),
        pytest.param({"url": "redis://"}, "write redis://", id="no host"),
        pytest.param({"url": "redis://:s3cret@x/0"}, "credentialFile", id="a password in the manifest"),
        pytest.param({"url": "redis://x/first"}, "no number of a database", id="a name for a number"),
        pytest.param({"share": 0}, "greater than 0", id="a share of nothing would be no limit"),
        pytest.param({"share": 1.5}, "less than or equal to 1", id="more than the whole"),
        pytest.param({"timeout": "5s"}, "less than or equal to 2", id="a wait that clients would feel"),
        pytest.param({"prefix": "a b"}, "match", id="a prefix with a space"),
    ],
)
def test_what_is_wrong_with_a_store_is_told(spec: dict[str, object], told: str) -> None:
    with pytest.raises(ValidationError, match=told) as error:
        shared(**spec)
    assert "s3cret" not in "".join(str(fault["msg"]) for fault in error.value.errors())


def test_a_share_must_be_said() -> None:
    with pytest.raises(ValidationError, match="share"):
        InferenceGatewaySpec.model_validate({"sharedLimits": {"url": STORE["url"]}}, context="manifest")


def test_the_condition_says_what_any_worker_says() -> None:
    well, ill = Live(worker="a", pid=1, at=1.0), Live(worker="b", pid=2, at=1.0, limits_problem="the store is gone")

    assert (quotas.kept((well,)).status, quotas.kept((well,)).reason) == ("True", "Kept")
    told = quotas.kept((well, ill))
    assert (told.status, told.reason, told.message) == ("False", "KeptInPart", "the store is gone")
