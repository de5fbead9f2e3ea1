"""Command lines: every field of the block is mapped or refused by name, and no key is ever in one."""

from typing import get_args

import pytest

from stoker.base.errors import Invalid
from stoker.base.json import JsonObject
from stoker.engines.base import Ask, Engine, Launch, Model
from stoker.engines.parts.blocks import UNMAPPED
from stoker.engines.parts.standard import Standard
from stoker.engines.registry import ENGINES, get, python_module
from stoker.spec.deployment import EngineBlock, EngineName

SECRET = "engine-key-of-this-attempt"
MODEL = Model(path="/models/m", format="gguf", context_tokens=8192)
LAUNCHED = [name for name in ENGINES if name != "external"]


def ask(name: str, *, devices: tuple[str, ...] = (), lora: dict[str, str] | None = None, **fields: object) -> Ask:
    return Ask(
        block=EngineBlock.model_validate({"name": name, **fields}),
        model=None if name == "ollama" else MODEL,
        served_name="team/m",
        port=41234,
        secret=SECRET,
        secret_file="/run/x.secret",
        executable=("program",),
        devices=devices,
        cores=8,
        lora=lora or {},
    )


def launch(name: str, **fields: object) -> Launch:
    return get(name).launch(ask(name, **fields))


def after(argv: tuple[str, ...], flag: str) -> str:
    return argv[argv.index(flag) + 1]


@pytest.mark.parametrize("engine", [ENGINES[name] for name in LAUNCHED], ids=LAUNCHED)
def test_every_field_is_mapped_or_refused(engine: Engine) -> None:
    assert isinstance(engine, Standard)
    fields = set(EngineBlock.model_fields) - UNMAPPED

    assert set(engine.table.flags) | set(engine.table.refused) == fields
    assert not set(engine.table.flags) & set(engine.table.refused)
    assert set(engine.table.spelled.values()) <= set(engine.table.flags)
    assert all(engine.table.refused.values())


@pytest.mark.parametrize("name", LAUNCHED)
def test_no_key_is_in_a_command_line_and_nothing_listens_beyond_loopback(name: str) -> None:
    made = launch(name)

    assert not [word for word in made.argv if SECRET in word]
    assert "0.0.0.0" not in " ".join((*made.argv, *made.env.values()))
    assert made.env["CUDA_VISIBLE_DEVICES"] == ""
    assert made.env["STOKER_PORT"] == "41234"


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("llama.cpp", {"contextTokens": 4096, "maxSequences": 2}, "-np 2 -c 8192"),
        ("llama.cpp", {"kvDtype": "q8_0"}, "-ctk q8_0 -ctv q8_0"),
        ("llama.cpp", {"prefixCache": False}, "--no-cache-prompt"),
        ("llama.cpp", {"chunkTokens": 256}, "-b 256 -ub 256"),
        ("llama.cpp", {"embeddings": True}, "--embedding"),
        ("llama.cpp", {"devices": ("GPU-1",)}, "-ngl 999"),
        ("llama.cpp", {}, "-t 7 -ngl 0"),
        ("llama.cpp", {}, "--api-key-file /run/x.secret"),
        ("llama.cpp", {"lora": {"a": "/l"}}, "--lora /l"),
        (
            "llama.cpp",
            {"speculative": {"method": "draft", "model": "/d", "tokens": 4}},
            "--spec-draft-model /d --spec-draft-n-max 4",
        ),
        ("vllm", {"contextTokens": 4096, "maxSequences": 2}, "--max-num-seqs 2 --max-model-len 4096"),
        ("vllm", {"memoryFraction": 0.9}, "--gpu-memory-utilization 0.9"),
        ("vllm", {"prefixCache": False}, "--no-enable-prefix-caching"),
        ("vllm", {"toolParser": "hermes"}, "--enable-auto-tool-choice --tool-call-parser hermes"),
        ("vllm", {"tensorParallel": 8, "pipelineParallel": 2}, "--tensor-parallel-size 8 --pipeline-parallel-size 2"),
        ("vllm", {"speculative": {"method": "ngram", "tokens": 3}}, '"num_speculative_tokens": 3'),
        ("vllm", {"lora": {"a": "/l"}}, "--enable-lora --lora-modules a=/l"),
        ("sglang", {"memoryFraction": 0.8, "maxSequences": 9}, "--mem-fraction-static 0.8 --max-running-requests 9"),
        ("sglang", {"prefixCache": False}, "--disable-radix-cache"),
        (
            "sglang",
            {"speculative": {"method": "eagle", "model": "/d"}},
            "--speculative-algorithm EAGLE --speculative-draft-model-path /d",
        ),
        ("tensorrt-llm", {"maxSequences": 4, "prefixCache": True}, "--set kv_cache_config.enable_block_reuse=true"),
        ("simulated", {"toolParser": "any"}, "--tool-parser any"),
        ("vllm", {"extraArgs": ["--enforce-eager", "--dtype=float32"]}, "--enforce-eager --dtype=float32"),
    ],
)
def test_what_is_asked_stands_in_the_command_line(name: str, fields: JsonObject, words: str) -> None:
    assert words in " ".join(launch(name, **fields).argv)


@pytest.mark.parametrize(
    ("name", "fields", "field", "words"),
    [
        ("llama.cpp", {"memoryFraction": 0.5}, "spec.engine.memoryFraction", "contextTokens"),
        ("llama.cpp", {"tensorParallel": 2}, "spec.engine.tensorParallel", "resources.devices"),
        ("llama.cpp", {"kvDtype": "fp8"}, "spec.engine.kvDtype", "q8_0"),
        (
            "llama.cpp",
            {"contextTokens": 9, "extraArgs": ["-c", "7"]},
            "spec.engine.extraArgs",
            "contradicts contextTokens",
        ),
        ("llama.cpp", {"maxSequences": 9, "extraArgs": ["--parallel=7"]}, "spec.engine.extraArgs", "contradicts"),
        ("llama.cpp", {"extraArgs": ["--port", "1"]}, "spec.engine.extraArgs", "loopback"),
        ("llama.cpp", {"speculative": {"method": "mtp"}}, "spec.engine.speculative.method", "ngram"),
        ("vllm", {"extraArgs": ["--host=0.0.0.0"]}, "spec.engine.extraArgs", "loopback"),
        ("vllm", {"extraArgs": ["--api-key", "x"]}, "spec.engine.extraArgs", "key"),
        ("vllm", {"extraArgs": ["--trust-remote-code"]}, "spec.engine.extraArgs", "not run here"),
        ("vllm", {"env": {"VLLM_API_KEY": "x"}}, "spec.engine.env", "set by the platform"),
        ("vllm", {"env": {"CUDA_VISIBLE_DEVICES": "0"}}, "spec.engine.env", "set by the platform"),
        ("tensorrt-llm", {"quantization": "fp8"}, "spec.engine.quantization", "checkpoint"),
        ("ollama", {"toolParser": "x"}, "spec.engine.toolParser", "Modelfile"),
        ("command", {"memoryFraction": 0.5}, "spec.engine.memoryFraction", "runtime.command"),
        ("external", {}, "spec.engine.name", "ModelEndpoint"),
    ],
)
def test_what_does_not_go_is_refused_by_name(name: str, fields: JsonObject, field: str, words: str) -> None:
    with pytest.raises(Invalid) as caught:
        launch(name, **fields)

    assert caught.value.faults[0].field == field
    assert words in str(caught.value)


def test_all_refusals_come_at_once() -> None:
    with pytest.raises(Invalid) as caught:
        launch("llama.cpp", memoryFraction=0.5, tensorParallel=2, extraArgs=["--host", "x"])

    assert len(caught.value.faults) == 3


def test_extra_args_of_an_unset_field_pass() -> None:
    argv = launch("llama.cpp", extraArgs=["-np", "3", "-c", "9000"]).argv

    assert argv.count("-np") == 1
    assert after(argv, "-c") == "9000"


def test_llama_cpp_waits_passively() -> None:
    env = launch("llama.cpp").env

    assert (env["OMP_WAIT_POLICY"], env["GOMP_SPINCOUNT"]) == ("passive", "0")


def test_vllm_takes_the_model_as_serve_wants_it() -> None:
    made = get("vllm").launch(
        Ask(**{**{f: getattr(ask("vllm"), f) for f in Ask.__slots__}, "executable": ("vllm", "serve")})
    )

    assert made.argv[:3] == ("vllm", "serve", "/models/m")
    assert made.env["VLLM_API_KEY"] == SECRET


def test_the_context_of_one_request() -> None:
    assert get("llama.cpp").effective_context(EngineBlock(name="llama.cpp", max_sequences=4), MODEL) == 2048
    assert get("llama.cpp").effective_context(EngineBlock(name="llama.cpp", context_tokens=100), MODEL) == 100
    assert get("vllm").effective_context(EngineBlock(name="vllm"), MODEL) == 8192
    assert get("vllm").effective_context(EngineBlock(name="vllm"), None) == 0


def test_an_opaque_command_learns_its_port_but_never_writes_its_key() -> None:
    base = {f: getattr(ask("command"), f) for f in Ask.__slots__}
    made = get("command").launch(
        Ask(**{**base, "executable": ("serve", "--port=$(STOKER_PORT)", "$(STOKER_MODEL_PATH)")})
    )
    assert made.argv == ("serve", "--port=41234", "/models/m")
    assert made.env["STOKER_ENGINE_SECRET"] == SECRET

    for word, hint in (("$(STOKER_ENGINE_SECRET)", "let the engine read"), ("$(PORT)", "STOKER_PORT")):
        with pytest.raises(Invalid, match=r"spec\.runtime\.command") as caught:
            get("command").launch(Ask(**{**base, "executable": ("serve", word)}))
        assert hint in str(caught.value)


def test_the_names_in_manifests_are_those_of_the_adapters() -> None:
    assert set(get_args(EngineName)) == set(ENGINES)


def test_the_nearest_engine_is_named() -> None:
    with pytest.raises(Invalid, match=r"did you mean 'llama\.cpp'"):
        get("llama-cpp")
    with pytest.raises(Invalid, match="kind command"):
        python_module("ollama")
