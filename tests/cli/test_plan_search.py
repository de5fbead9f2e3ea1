"""`stoker plan MODEL --for …` as a user types it: ranks, manifests that apply, pages, prices, and bad input."""

import json
import re
from pathlib import Path

import pytest
from tests.models import hollow
from typer.testing import CliRunner, Result

from stoker.base.errors import Invalid, NotFound
from stoker.cli.main import build
from stoker.engines.base import Ask, Model
from stoker.engines.registry import get
from stoker.spec import manifest
from stoker.spec.deployment import ModelDeploymentSpec
from stoker.spec.service import ModelServiceSpec

app = build()

LEAN = ("--gpus", "h100-sxm", "--max-cards", "1", "--pace", "110")  # a tight bar: small loads, quick runs


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(hollow.llama_8b(tmp_path_factory.mktemp("models")))


def stoker(*words: str) -> Result:
    return CliRunner().invoke(app, ["--state-dir", "/nonexistent", "plan", *words])


def test_a_search_ranks_explains_and_prices(llama: str, tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    words = ("--for", "chat", "--users", "500", *LEAN, "--hosted", "other=0.2,0.05,0.6", "--html", str(page))
    result = stoker(llama, *words, "--growth", "100x", "--by", "2099-12-31", "--explain")
    assert result.exit_code == 0, result.output

    assert "500 users: 0.0" in result.stdout
    for word in ("Pareto", "H100-SXM-80GB", "2026-05", "other", "$/M CACHED", "flags", "output cap", "SOURCE"):
        assert word in result.stdout
    drawn = page.read_text()
    assert drawn.count("<svg") == 3
    assert not re.search(r"(src|href)=|https?://|@import|url\(", drawn)


def test_a_manifest_is_one_that_can_be_applied(llama: str) -> None:
    result = stoker(llama, "--for", "rag", "--in-flight", "4", *LEAN, "-o", "manifest")
    assert result.exit_code == 0, result.output
    documents = manifest.load(result.stdout)
    deployment, case, service = (document.spec for document in documents)

    assert [document.kind for document in documents] == ["ModelDeployment", "UseCase", "ModelService"]
    assert isinstance(deployment, ModelDeploymentSpec)
    assert isinstance(service, ModelServiceSpec)
    assert case is not None
    assert service.limits.max_output_tokens
    model = Model(path=llama, format="safetensors", context_tokens=131072)
    ask = Ask(block=deployment.block, model=model, served_name="m", port=1, secret="s", executable=("python",))
    argv = get("vllm").launch(ask).argv
    assert {"--max-num-seqs", "--gpu-memory-utilization", "--max-model-len", "--max-num-batched-tokens"} <= set(argv)


def test_a_search_for_a_program(llama: str) -> None:
    found = json.loads(stoker(llama, "--for", "chat", "--in-flight", "9", *LEAN, "-o", "json").stdout)

    assert found["in_flight"] == 9
    assert found["in_flight_why"] == "as you said"
    assert found["options"][0]["visible_ttft_seconds"]["p90"] <= found["bar"]["visible_ttft_p90_seconds"]
    assert found["money"]["per_million_usd"][0]["output"] > 0


def test_own_prices_and_their_date(llama: str, tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text("date: 2026-11-30\ncards: {h100-sxm: 9.75}\n")
    found = json.loads(
        stoker(llama, "--for", "chat", "--in-flight", "5", *LEAN, "--prices", str(file), "-o", "json").stdout
    )

    assert found["options"][0]["usd_per_hour"] == 9.75
    assert found["options"][0]["price_date"] == "2026-11-30, yours"


def test_a_use_case_of_ones_own_and_a_trace(llama: str, tmp_path: Path) -> None:
    case = tmp_path / "case.yaml"
    case.write_text(
        "apiVersion: stoker.dev/v1alpha1\nkind: UseCase\nmetadata: {name: c}\n"
        "spec: {preset: chat, contextTokens: 4096, profile: rag}\n"
    )
    rows = tmp_path / "seen.csv"
    lines = [f"{i * 0.4:.1f},{200 + 40 * (i % 20)},{20 + i % 50},s{i % 7}" for i in range(60)]
    rows.write_text("at_seconds,prompt_tokens,output_tokens,session\n" + "\n".join(lines) + "\n")
    told = [
        json.loads(stoker(llama, "--for", str(file), "--in-flight", "5", *LEAN, "-o", "json").stdout)
        for file in (case, rows)
    ]

    assert [each["profile"]["name"] for each in told] == ["rag", "seen"]
    assert told[1]["profile"]["source"] == "60 recorded requests"
    assert "--max-model-len=4096" in told[0]["options"][0]["flags"]


def test_nothing_within_the_bar_is_told_by_the_exit_code(llama: str) -> None:
    words = ("--for", "chat", "--users", "9", *LEAN, "--ttft", "0.001")

    assert stoker(llama, *words).exit_code == 1
    assert "falls out" in stoker(llama, *words).stdout
    assert isinstance(stoker(llama, *words, "-o", "manifest").exception, NotFound)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(("--for", "chta", "--users", "5"), "did you mean 'chat'", id="profile"),
        pytest.param(("--for", "chat"), "how large the load is", id="no load"),
        pytest.param(("--for", "chat", "--users", "-5"), "how large the load is", id="negative"),
        pytest.param(("--for", "chat", "--users", "5", "--gpus", "h1000"), "nearest: H100", id="card"),
        pytest.param(("--for", "chat", "--users", "5", "--hosted", "3,15"), "INPUT,CACHED,OUTPUT", id="hosted"),
        pytest.param(("--for", "nothing.csv", "--users", "5"), "nothing.csv", id="no trace"),
        pytest.param(("--for", "chat", "--users", "5", "-o", "xml"), "json, yaml or manifest", id="form"),
        pytest.param(
            ("--for", "chat", "--users", "5", "--gpus", "h100", "--max-cards", "1", "--growth", "10x"),
            "belong together",
            id="growth",
        ),
    ],
)
def test_bad_input_is_one_clear_line(llama: str, words: tuple[str, ...], message: str) -> None:
    error = stoker(llama, *words).exception

    assert isinstance(error, Invalid)
    assert message in str(error)
