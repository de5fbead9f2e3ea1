"""Bad manifests are told with file, line, field and the nearest right name; good ones come through."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from stoker.base.errors import Fault, Invalid
from stoker.spec import manifest, references
from stoker.spec.deployment import ModelDeploymentSpec
from stoker.spec.kinds import KINDS
from stoker.spec.service import ModelServiceSpec

HEAD = "apiVersion: stoker.dev/v1alpha1\nkind: ModelDeployment\nmetadata: {name: x}\nspec:\n"
BODY = "  model: {path: /m}\n  engine: {name: llama.cpp}\n"


def faults(text: str) -> tuple[Fault, ...]:
    with pytest.raises(Invalid) as caught:
        manifest.load(text, file="a.yaml")
    return caught.value.faults


@pytest.mark.parametrize(
    ("text", "line", "field", "words"),
    [
        pytest.param(HEAD + BODY + "  replcas: 2\n", 7, "spec.replcas", "did you mean 'replicas'?", id="typo"),
        pytest.param(
            HEAD + "  model: {path: /m}\n  engine:\n    name: vllm\n    memoryFracton: 0.9\n",
            8,
            "spec.engine.memoryFracton",
            "did you mean 'memoryFraction'?",
            id="typo below",
        ),
        pytest.param(
            HEAD + BODY + "  rollout:\n    strategy: recreate\n",
            8,
            "spec.rollout.strategy",
            "did you mean 'Recreate'?",
            id="wrong enum",
        ),
        pytest.param(
            HEAD + BODY + "  rollout: {progressDeadline: 30}\n", 7, "spec.rollout.progressDeadline", "30s", id="no unit"
        ),
        pytest.param(
            HEAD + BODY + "  resources:\n    memory: 16Gx\n", 8, "spec.resources.memory", "16Gi", id="wrong unit"
        ),
        pytest.param(
            HEAD + "  model: {path: /m}\n  engine:\n    name: vlm\n",
            7,
            "spec.engine.name",
            "did you mean 'vllm'?",
            id="engine",
        ),
        pytest.param(
            HEAD + "  model: {path: /m}\n  engine: {name: vllm}\n",
            4,
            "spec",
            "say in runtime where it is",
            id="no runtime",
        ),
        pytest.param(HEAD + BODY + "  replicas: '2'\n", 7, "spec.replicas", "whole number", id="text for a number"),
        pytest.param(
            HEAD + BODY + f"  resources: {{memory: {'9' * 400}Gi}}\n",
            7,
            "spec.resources.memory",
            "too large",
            id="overflow",
        ),
        pytest.param(
            HEAD + "  model: {path: /m}\n  engine: {name: llama.cpp, contextTokens: 0xffffffffffffffffffff}\n",
            6,
            "spec.engine.contextTokens",
            "less than or equal",
            id="beyond exact numbers",
        ),
        pytest.param(HEAD + BODY + "  replicas: 11\n", 7, "spec.replicas", "10", id="out of bounds"),
        pytest.param(HEAD + BODY + "  replicas: true\n", 7, "spec.replicas", "whole number", id="boolean for a number"),
        pytest.param(HEAD + "  model: {path: /m}\n", 4, "spec", "say what runs", id="no engine"),
        pytest.param(
            HEAD + BODY + "  runtime: {kind: command, command: [x]}\n  template: {spec: {engines: []}}\n",
            8,
            "spec.template.spec.engines",
            "at least 1",
            id="empty template",
        ),
        pytest.param(HEAD + "  engine: {name: llama.cpp}\n", 4, "spec", "say which model", id="no model"),
        pytest.param(
            HEAD + "  model: {path: /m, repo: a/b}\n  engine: {name: vllm}\n",
            5,
            "spec.model",
            "exactly one",
            id="two models",
        ),
        pytest.param(
            "apiVersion: stoker.dev/v1alpha1\nkind: ModelServce\nmetadata: {name: x}\n",
            2,
            "kind",
            "did you mean 'ModelService'?",
            id="kind",
        ),
        pytest.param(
            "apiVersion: stoker.dev/v1alpha2\nkind: ModelService\nmetadata: {name: x}\n",
            1,
            "apiVersion",
            "did you mean 'stoker.dev/v1alpha1'?",
            id="version",
        ),
        pytest.param("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n", 1, "apiVersion", "foreign kind", id="foreign"),
        pytest.param("kind: ModelService\n", 1, "apiVersion", "is required", id="no version"),
        pytest.param(
            "apiVersion: stoker.dev/v1alpha1\nkind: ModelReplica\nmetadata: {name: x}\n",
            2,
            "kind",
            "composed",
            id="composed kind",
        ),
        pytest.param(
            HEAD.replace("{name: x}", "{name: Under_Score}") + BODY, 3, "metadata.name", "no valid name", id="name"
        ),
        pytest.param(
            HEAD.replace("{name: x}", "\n  nmae: x") + BODY, 4, "metadata.nmae", "did you mean 'name'?", id="metadata"
        ),
        pytest.param(HEAD + BODY + "status2: {}\n", 7, "status2", "did you mean 'status'?", id="top level"),
        pytest.param(
            "apiVersion: stoker.dev/v1alpha1\nkind: Caller\nmetadata: {name: x, namespace: y}\nspec: {}\n",
            3,
            "metadata.namespace",
            "cluster-wide",
            id="namespace of a cluster-wide kind",
        ),
        pytest.param(
            HEAD + BODY + "  replicas: 1\n  replicas: 2\n", 8, "spec.replicas", "second time", id="duplicate key"
        ),
        pytest.param(HEAD + "  a: [\n", 6, "", "no valid YAML", id="no YAML"),
        pytest.param(HEAD + "  engine: !!python/object:os.system {}\n", 5, "spec.engine", "is not allowed", id="tag"),
        pytest.param("- just\n- a list\n", 1, "", "must be a mapping", id="a list"),
        pytest.param("a: &a [*a]\n", 1, "a[0]", "contains itself", id="endless alias"),
    ],
)
def test_a_fault_is_told_where_it_is(text: str, line: int, field: str, words: str) -> None:
    found = faults(text)

    assert all(fault.file == "a.yaml" for fault in found)
    assert [str(fault) for fault in found if (fault.line, fault.field) == (line, field) and words in str(fault)]


def test_engine_and_template_exclude_each_other() -> None:
    text = (
        HEAD
        + BODY
        + (
            "  template: {spec: {engines: [{name: e, members: [{nodeSelector: {devices: [{name: gpu}]}, "
            "template: {spec: {containers: [{name: engine, image: i}]}}}]}]}}\n"
        )
    )

    assert "not both" in faults(text)[0].message


def test_all_faults_of_all_documents_are_told_at_once() -> None:
    found = faults(HEAD + BODY + "  replcas: 2\n  memory: 1\n---\n" + HEAD + BODY + "  probs: {}\n")

    assert [(f.line, f.field) for f in found] == [(7, "spec.replcas"), (8, "spec.memory"), (16, "spec.probs")]


def test_the_same_resource_twice_in_a_set_is_a_fault() -> None:
    with pytest.raises(Invalid, match="declared twice"):
        manifest.load_set([("a.yaml", HEAD + BODY), ("b.yaml", HEAD + BODY)])


def test_aliases_that_stand_for_too_much_are_refused() -> None:
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{b}: &{b} [*{a},*{a},*{a},*{a},*{a},*{a},*{a},*{a},*{a}]\n"
        for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )

    assert "too many values" in faults(bomb)[0].message


def test_endless_nesting_is_a_fault_and_no_crash() -> None:
    assert "nested too deeply" in faults("a: " + "[" * 20_000 + "]" * 20_000)[0].message


def test_merge_keys_and_anchors_are_expanded_and_own_keys_win() -> None:
    text = (
        "apiVersion: stoker.dev/v1alpha1\nkind: ModelDeployment\nmetadata: {name: x}\nspec:\n"
        "  model: {path: /m}\n  engine:\n    <<: &base {name: llama.cpp, contextTokens: 10}\n    contextTokens: 20\n"
    )
    spec = manifest.load(text)[0].spec

    assert isinstance(spec, ModelDeploymentSpec)
    assert (spec.block.name, spec.block.context_tokens) == ("llama.cpp", 20)


def test_json_is_read_too_with_tabs_and_escapes() -> None:
    text = (
        '{\n\t"apiVersion": "stoker.dev/v1alpha1",\n\t"kind": "ModelService",\n\t"metadata": {"name": "s"},\n'
        '\t"spec": {"aliases": ["a\\/b", "\\ud83d\\ude00"],\n'
        '\t"endpoints": [{"selector": {"matchLabels": {"a": "b"}}}]}\n}'
    )
    spec = manifest.load(text)[0].spec

    assert isinstance(spec, ModelServiceSpec)
    assert spec.aliases == ("a/b", "\U0001f600")


def test_what_the_server_wrote_may_come_back() -> None:
    text = HEAD.replace(
        "{name: x}", "{name: x, uid: u, generation: 3, resourceVersion: '7', creationTimestamp: 2026-01-01}"
    )
    document = manifest.load(text + BODY + "status: {conditions: []}\n")[0]

    assert document.metadata.resource_version == "7"


def test_fields_that_nothing_acts_on_yet_are_named() -> None:
    document = manifest.load(HEAD + BODY + "  clusterSelector: {matchLabels: {a: b}}\n  tolerations: []\n")[0]

    assert document.deferred == ("spec.clusterSelector",)


def test_quantities_are_read_in_their_units() -> None:
    text = HEAD + BODY + "  resources: {memory: 1.5Gi, cpu: 2}\n  probes: {startup: 1h30m, ready: 250ms}\n"
    spec = manifest.load(text)[0].spec

    assert isinstance(spec, ModelDeploymentSpec)
    assert (spec.resources.memory, spec.probes.startup, spec.probes.ready) == (1610612736, 5400.0, 0.25)


SET = """
apiVersion: stoker.dev/v1alpha1
kind: ModelService
metadata: {name: chat, namespace: team}
spec:
  useCaseRef: {name: cht}
  endpoints: [{selector: {matchLabels: {a: b}}}]
---
apiVersion: stoker.dev/v1alpha1
kind: UseCase
metadata: {name: chat, namespace: team}
spec: {preset: chat}
---
apiVersion: stoker.dev/v1alpha1
kind: Caller
metadata: {name: ann}
spec:
  allow:
    services:
    - "*"
    - team/chat
    - team/chta
"""


def test_dangling_references_are_told_and_the_store_counts() -> None:
    documents = manifest.load(SET, file="s.yaml")
    found = references.check(documents, {})

    assert [(f.line, f.field, f.hint) for f in found] == [
        (6, "spec.useCaseRef.name", "did you mean 'chat'?"),
        (22, "spec.allow.services[2]", "did you mean 'chat'?"),
    ]
    assert len(references.check(documents, {("UseCase", "team"): {"cht"}, ("ModelService", "team"): {"chta"}})) == 0


def test_limits_of_a_model_that_is_not_there_are_told() -> None:
    text = "apiVersion: stoker.dev/v1alpha1\nkind: Caller\nmetadata: {name: x}\nspec:\n  limits:\n    models:\n"
    documents = manifest.load(text + "      team/chta: {tokensPerDay: 5}\n", file="c.yaml")
    (fault,) = references.check(documents, {("ModelService", "team"): {"chat"}})

    assert (fault.line, fault.hint) == (7, "did you mean 'chat'?")


def test_every_example_loads_and_nothing_in_it_dangles() -> None:
    files = sorted(Path("examples").glob("*.yaml"))
    documents = manifest.load_set([(str(f), f.read_text()) for f in files])

    assert files
    assert references.check(documents, {}) == ()
    assert all(document.ignored == () for document in documents)
    assert all(list(yaml.safe_load_all(f.read_text())) for f in files)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@given(text=st.text())
def test_no_text_breaks_the_reader(text: str) -> None:
    with suppress(Invalid):
        manifest.load(text)


@given(
    group=st.sampled_from(["stoker.dev/v1alpha1", "modelplane.ai/v1alpha1"]),
    kind=st.sampled_from(list(KINDS)),
    spec=json_values
    | st.dictionaries(
        st.sampled_from(
            ["engine", "template", "endpoints", "cluster", "url", "timeouts", "credential", "nodePools", "auth"]
        ),
        json_values,
    ),
)
def test_no_shape_breaks_a_kind(group: str, kind: str, spec: object) -> None:
    document = {"apiVersion": group, "kind": kind, "metadata": {"name": "x"}, "spec": spec}

    with suppress(Invalid):
        manifest.load(json.dumps(document))
