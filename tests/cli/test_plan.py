"""`stoker plan` and `stoker model show` as a user types them, on a real small checkpoint."""

import json
from pathlib import Path

import pytest
from tests.models import tiny
from typer.testing import CliRunner, Result

from stoker.base.errors import Invalid, NotFound
from stoker.cli.main import build

app = build()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tiny.Tiny:
    return tiny.make(tmp_path_factory.mktemp("models"))


def stoker(*words: str) -> Result:
    return CliRunner().invoke(app, ["--state-dir", "/nonexistent", *words])


@pytest.mark.parametrize("engine", ["vllm@0.19.0", "vllm", "sglang", "tensorrt-llm", "llama.cpp"])
def test_a_plan_adds_up_for_every_engine(made: tiny.Tiny, engine: str) -> None:
    result = stoker("plan", str(made.folder), "--gpu", "l40s", "--engine", engine, "-o", "json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["plans"][0]

    assert sum(term["bytes"] for term in found["budget"]) == pytest.approx(found["card_bytes"], abs=10)
    assert found["fits"]
    assert found["sessions"] >= 1
    assert found["flags"]


def test_a_plan_reads_as_text_and_explains_itself(made: tiny.Tiny) -> None:
    words = ("plan", str(made.gguf), "--gpu", "h100", "--engine", "llama.cpp", "--sessions", "4", "--context", "512")
    result = stoker(*words, "--explain", "--usd-per-hour", "2.90", "--tokens-per-second", "1200")

    assert result.exit_code == 0, result.output
    assert "--ctx-size=2048 --parallel=4" in result.stdout
    assert "SOURCE" in result.stdout
    assert "$0.67 at 100% use" in result.stdout


def test_what_does_not_fit_is_told_by_the_exit_code(made: tiny.Tiny) -> None:
    result = stoker("plan", str(made.folder), "--gpu", "l40s", "--card", "100Mi", "--quantization", "none")

    assert result.exit_code == 1
    assert "are missing" in result.stdout


@pytest.mark.parametrize(
    ("words", "kind", "message"),
    [
        pytest.param(("--gpu", "h1000"), Invalid, "nearest: H100", id="a card that does not exist"),
        pytest.param(("--gpu", "h100", "--tp", "3"), Invalid, "cannot be divided", id="heads"),
        pytest.param(("--gpu", "h100", "--count", "4", "--tp", "3"), Invalid, "not 4", id="cards that do not add up"),
        pytest.param(("--gpu", "h100", "--count", "3", "--pp", "2"), Invalid, "cannot be divided into 2", id="stages"),
        pytest.param(("--gpu", "h100", "--context", "99999999"), Invalid, "model's limit", id="context"),
        pytest.param(("--gpu", "h100", "--engine", "vlm"), Invalid, "did you mean 'vllm'", id="engine"),
        pytest.param(("--gpu", "h100", "--kv-dtype", "int3"), Invalid, "one of auto, fp8", id="dtype"),
        pytest.param(("--gpu", "h100", "--card", "-5Gi"), Invalid, "not a size", id="a negative size"),
    ],
)
def test_bad_input_is_one_clear_line(
    made: tiny.Tiny, words: tuple[str, ...], kind: type[Exception], message: str
) -> None:
    result = stoker("plan", str(made.folder), *words)

    assert isinstance(result.exception, kind)
    assert message in str(result.exception)


def test_a_model_that_is_nowhere() -> None:
    assert isinstance(stoker("plan", "./nothing", "--gpu", "h100").exception, NotFound)


def test_model_show_names_every_role(made: tiny.Tiny) -> None:
    found = json.loads(stoker("model", "show", str(made.folder), "-o", "json").stdout)
    text = stoker("model", "show", str(made.gguf)).stdout

    assert sum(found["bytes_by_role"].values()) == found["weight_bytes"]
    assert found["context_tokens"] == tiny.CONTEXT
    assert found["unknown_tensors"] == []
    assert all(role in text for role in found["bytes_by_role"])


def test_a_missing_shard_stops_the_plan(made: tiny.Tiny, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    folder.mkdir()
    for path in made.folder.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    index = {"weight_map": {"model.norm.weight": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    error = stoker("plan", str(folder), "--gpu", "h100").exception
    assert isinstance(error, Invalid)
    assert "missing" in str(error)


def test_times_of_a_load_come_with_a_band(made: tiny.Tiny) -> None:
    words = ("plan", str(made.folder), "--gpu", "h100", "--load", "100/20/4")
    found = json.loads(stoker(*words, "-o", "json").stdout)["plans"][0]["times"]

    assert found["tpot_low_seconds"] <= found["tpot_seconds"] <= found["tpot_high_seconds"]
    assert "TPOT" in stoker(*words).stdout
    assert isinstance(stoker(*words[:-1], "100/x/4").exception, Invalid)


def test_any_set_of_measurements_is_judged_by_one_command() -> None:
    data = Path(__file__).parents[1] / "data/planner"
    models = ("--models", str(data / "models.json"), "--models", str(data / "more_models.json"))
    files = ("--rows", str(data / "latency_rows.csv"), "--cases", str(data / "memory_cases.json"))
    found = json.loads(stoker("plan", "judge", *files, *models, "-o", "json").stdout)

    assert found["TPOT, model left out"]["rows"] > 2500
    assert found["KV GiB from checkpoint, model left out"]["median"] <= 0.01
    assert "TPOT, system left out" in found
    assert "KV GiB from checkpoint" in stoker("plan", "judge", *files[2:], *models).stdout
    assert isinstance(stoker("plan", "judge", "--rows", str(data / "nothing.csv"), *models).exception, Invalid)
