"""Modelplane's own documents load, or are refused by name; what is lost is said."""

from pathlib import Path

import pytest

from stoker.base.errors import Invalid
from stoker.spec import manifest
from stoker.spec.deployment import ModelDeploymentSpec
from stoker.spec.endpoint import ModelEndpointSpec
from stoker.spec.gateway import InferenceGatewaySpec
from stoker.spec.hardware import InferenceClusterSpec
from stoker.spec.meta import Spec
from stoker.spec.service import ModelServiceSpec

FOLDER = Path("tests/data/modelplane-manifests")
FILES = sorted(FOLDER.rglob("*.yaml"))
FOREIGN = {
    "clusterproviderconfig-aws.yaml": ["ClusterProviderConfig"],
    "clusterproviderconfig-azure.yaml": ["ClusterProviderConfig"],
    "clusterproviderconfig-gke.yaml": ["ClusterProviderConfig"],
    "clusterproviderconfig-nebius.yaml": ["ClusterProviderConfig"],
    "clusterproviderconfig-vultr.yaml": ["ClusterProviderConfig"],
    "configuration.yaml": ["Configuration"],
    "prerequisites.yaml": ["Namespace", "ClusterRole", "DeploymentRuntimeConfig", "ClusterRoleBinding", "ImageConfig"],
}


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(FOLDER)))
def test_every_document_loads_or_is_refused_by_name(file: Path) -> None:
    if file.name not in FOREIGN:
        assert manifest.load(file.read_text(), file=str(file))
        return
    with pytest.raises(Invalid) as caught:
        manifest.load(file.read_text(), file=str(file))
    kinds = [fault.message.split(" ", 1)[0] for fault in caught.value.faults]
    assert kinds == FOREIGN[file.name]
    assert all("is a foreign kind" in fault.message and fault.line for fault in caught.value.faults)


def test_the_folder_is_whole() -> None:
    assert sum(len(manifest.load(f.read_text())) for f in FILES if f.name not in FOREIGN) == 85
    assert (FOLDER / "LICENSE").exists()


def read(kind: str, spec: str) -> tuple[Spec, tuple[str, ...]]:
    text = f"apiVersion: modelplane.ai/v1alpha1\nkind: {kind}\nmetadata: {{name: x}}\nspec:\n{spec}"
    document = manifest.load(text, file="m.yaml")[0]
    return document.spec, document.ignored


def test_a_gateway_of_v03_exposes_nothing_and_says_so() -> None:
    spec, ignored = read("InferenceGateway", "  backend: Traefik\n  traefik: {version: '1', loadBalancer: MetalLB}\n")

    assert isinstance(spec, InferenceGatewaySpec)
    assert spec.service_selector.match_labels == {}
    assert [line.split(":")[0].split(" ")[0] for line in ignored] == [
        "spec.backend",
        "spec.serviceSelector",
        "spec.traefik",
    ]


def test_a_gateway_of_v05_keeps_its_selector_and_method() -> None:
    spec, ignored = read(
        "InferenceGateway",
        "  clusterName: east\n  auth: {method: APIKey, apiKey: {secretSelector: {matchLabels: {a: b}}}}\n"
        "  serviceSelector: {matchLabels: {team: a}}\n  tls: {certificateRefs: [{name: c}]}\n",
    )

    assert isinstance(spec, InferenceGatewaySpec)
    assert (spec.service_selector.match_labels, spec.auth.methods) == ({"team": "a"}, ("APIKey",))
    assert {line.split(":")[0] for line in ignored} == {"spec.clusterName", "spec.tls", "spec.auth.apiKey"}


@pytest.mark.parametrize(
    ("body", "origin", "prefix"),
    [
        ("  url: https://api.example.com/\n  rewritePath: /\n", "https://api.example.com", "/v1"),
        ("  url: https://api.example.com/openai/\n", "https://api.example.com", "/openai/v1"),
        ("  url: https://api.example.com/\n  rewritePath: /inference\n", "https://api.example.com", "/inference/v1"),
        ("  origin: https://api.example.com\n  api: {schema: OpenAI, prefix: /v2}\n", "https://api.example.com", "/v2"),
    ],
)
def test_an_endpoint_keeps_where_it_points(body: str, origin: str, prefix: str) -> None:
    spec, _ = read("ModelEndpoint", body)

    assert isinstance(spec, ModelEndpointSpec)
    assert (spec.origin, spec.api.prefix) == (origin, prefix)


def test_a_credential_of_v05_is_lifted_and_a_fault_in_it_has_its_line() -> None:
    body = "  origin: https://a.example\n  credential:\n    method: APIKey\n    apiKey:\n      secretRef: {name: s}\n"
    spec, _ = read("ModelEndpoint", body)
    assert isinstance(spec, ModelEndpointSpec)
    assert spec.credential is not None
    assert spec.credential.secret_ref is not None
    assert spec.credential.secret_ref.name == "s"

    with pytest.raises(Invalid) as caught:
        read("ModelEndpoint", body.replace("{name: s}", "{name: 7}"))
    assert caught.value.faults[0].line == 9


def test_a_service_of_v05_keeps_priorities_and_drops_timeouts_that_are_off() -> None:
    spec, _ = read(
        "ModelService",
        "  timeouts: {request: 300s, idle: 0s}\n"
        "  endpoints: [{name: a, priority: 1, weight: 3, selector: {matchLabels: {x: y}}}]\n",
    )

    assert isinstance(spec, ModelServiceSpec)
    assert (spec.timeouts.request, spec.timeouts.idle, spec.endpoints[0].priority) == (300.0, None, 1)


def test_a_deployment_is_lifted_out_of_its_template() -> None:
    document = manifest.load((FOLDER / "examples/qwen3-coder/model-deployment.yaml").read_text())[0]

    assert isinstance(document.spec, ModelDeploymentSpec)
    assert document.spec.model_cache_ref is not None
    assert document.spec.opaque


def test_a_cluster_says_what_it_lost() -> None:
    document = manifest.load((FOLDER / "concepts/inference-cluster-eks.yaml").read_text())[0]

    assert isinstance(document.spec, InferenceClusterSpec)
    assert document.spec.source == "EKS"
    assert any(line.startswith("spec.cluster.eks") for line in document.ignored)


@pytest.mark.parametrize(
    ("kind", "body", "words", "line"),
    [
        ("ModelService", "  mirror: {}\n", "at v0.3.1 or v0.5", 5),
        ("ModelEndpoint", "  url: https://a\n  origin: https://a\n", "a document is of one version", 5),
        ("ModelDeployment", "  replicas: 1\n  template:\n    spec:\n      enginez: []\n", "did you mean 'engines'?", 8),
        (
            "InferenceCluster",
            "  cluster: {source: EKS}\n  nodePools: [{name: a, className: b, gpu: {}}]\n",
            "spec.nodePools[0].gpu",
            6,
        ),
        ("MetricMapping", "  metrics: []\n", "nothing here acts on it yet", 2),
        ("ModelReplica", "  clusterName: a\n", "composed from a ModelDeployment", 2),
        ("ModelServise", "  {}\n", "did you mean 'ModelService'?", 2),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(kind: str, body: str, words: str, line: int) -> None:
    with pytest.raises(Invalid) as caught:
        read(kind, body)

    assert words in str(caught.value)
    assert caught.value.faults[0].line == line
