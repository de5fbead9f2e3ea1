"""Specs go to the store and back unchanged; schemas describe what is accepted."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.base.errors import Invalid
from stoker.base.json import JsonObject
from stoker.spec.deployment import ModelDeploymentSpec
from stoker.spec.handbook import page
from stoker.spec.kinds import KINDS, dump_spec, find_kind, parse_spec, schema
from stoker.spec.usecase import PRESETS, UseCaseSpec

spans = st.floats(0, 1e7, allow_nan=False)
blocks: st.SearchStrategy[JsonObject] = st.fixed_dictionaries(
    {"name": st.just("vllm")},
    optional={
        "contextTokens": st.integers(1, 10**7),
        "memoryFraction": st.floats(0.01, 1),
        "prefixCache": st.booleans(),
        "extraArgs": st.lists(st.text(max_size=8), max_size=3),
        "env": st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
        "speculative": st.fixed_dictionaries({"method": st.sampled_from(["ngram", "mtp"])}),
    },
)
specs: st.SearchStrategy[JsonObject] = st.fixed_dictionaries(
    {
        "engine": blocks,
        "model": st.just({"repo": "a/b", "revision": "c"}),
        "runtime": st.just({"kind": "python", "path": "/p"}),
    },
    optional={
        "replicas": st.integers(0, 10),
        "probes": st.fixed_dictionaries({}, optional={"startup": spans, "ready": spans}),
        "resources": st.fixed_dictionaries({"memory": st.integers(0, 2**50)}),
        "rollout": st.fixed_dictionaries({"drainSeconds": spans, "maxSurge": st.integers(1, 9)}),
    },
)


@given(raw=specs)
def test_a_spec_survives_the_store(raw: JsonObject) -> None:
    spec = parse_spec("ModelDeployment", raw)
    stored = dump_spec(spec)
    back = parse_spec("ModelDeployment", json.loads(json.dumps(stored)))

    assert back == spec
    assert dump_spec(back) == stored


def test_what_was_left_at_its_default_is_not_stored() -> None:
    raw: JsonObject = {"replicas": 1, "model": {"path": "/m"}, "engine": {"name": "llama.cpp"}}

    assert dump_spec(parse_spec("ModelDeployment", raw)) == {"model": {"path": "/m"}, "engine": {"name": "llama.cpp"}}


def test_a_stored_spec_that_is_wrong_is_told() -> None:
    with pytest.raises(Invalid, match=r"spec\.engine\.name: is required"):
        parse_spec("ModelDeployment", {"engine": {}})


@pytest.mark.parametrize("kind", list(KINDS))
def test_every_kind_has_a_schema_whose_references_resolve(kind: str) -> None:
    written = schema(kind)
    text = json.dumps(written)
    definitions = written["$defs"]

    assert isinstance(definitions, dict)
    assert all(f'"{name}"' in text for name in definitions)
    wanted = {part.split('"')[0] for part in text.split("#/$defs/")[1:]}
    assert wanted <= set(definitions)


@pytest.mark.parametrize(
    ("word", "kind"), [("md", "ModelDeployment"), ("ModelServices", "ModelService"), ("uc", "UseCase")]
)
def test_a_kind_is_found_by_any_of_its_names(word: str, kind: str) -> None:
    assert find_kind(word).name == kind


def test_an_unknown_kind_names_the_nearest() -> None:
    with pytest.raises(Invalid, match="did you mean"):
        find_kind("modeldeploymnt")


@pytest.mark.parametrize("preset", list(PRESETS))
def test_a_preset_is_complete_and_what_is_written_wins(preset: str) -> None:
    resolved = UseCaseSpec.model_validate({"preset": preset, "contextTokens": 99}).resolved()

    assert resolved.context_tokens == 99
    assert all(getattr(resolved, name) is not None for name in UseCaseSpec.model_fields)


def test_an_opaque_command_has_the_block_of_the_command_engine() -> None:
    spec = ModelDeploymentSpec.model_validate({"runtime": {"kind": "command", "command": ["serve"]}})

    assert spec.opaque
    assert spec.block.name == "command"


def test_the_reference_page_is_fresh() -> None:
    assert Path("docs/reference/resources.md").read_text() == page(), "write it anew from stoker.spec.handbook.page()"
