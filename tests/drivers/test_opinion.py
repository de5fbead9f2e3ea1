"""A second opinion by a program beside ours: a stand-in that prints what AIConfigurator 0.12.0 prints."""

import stat
from pathlib import Path

import pytest
from tests.predict.test_fits import H100, L40S, LLAMA_8B, plan

from stoker.base.errors import Driver, Invalid
from stoker.drivers.figures import opinion
from stoker.predict.gpu import Gpu
from stoker.predict.roles import Split

SAID = """============================================================
  Performance Estimate (agg)
  Backend:          vllm (0.24.0)
  TP Size:          1
  TTFT:             74.853 ms
  TPOT:             8.654 ms
  Request Latency:  2281.603 ms"""
PLAN = plan(LLAMA_8B, H100, split=Split(tensor=2, quantize_to_bytes=1.0))


def program(folder: Path, script: str) -> Path:
    file = folder / "aiconfigurator"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return file


def test_its_estimate_is_read(tmp_path: Path) -> None:
    made = program(tmp_path, f"echo \"$@\" > {tmp_path}/argv; cat <<'END'\n{SAID}\nEND")
    found = opinion.ask(made, PLAN, tmp_path, prompt=1024, output=256, batch=16)
    argv = (tmp_path / "argv").read_text()

    assert (found.tpot, found.ttft) == (pytest.approx(0.008654), pytest.approx(0.074853))
    assert found.source == "AIConfigurator, vllm 0.24.0"
    for words in ("--system h100_sxm", "--isl 1024", "--osl 256", "--tp-size 2", "--gemm-quant-mode fp8"):
        assert words in argv


def test_a_program_without_an_answer_is_told_in_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(Driver, match=r"exit code 3\): no such model"):
        opinion.ask(program(tmp_path, "echo no such model >&2; exit 3"), PLAN, tmp_path, prompt=1, output=1, batch=1)
    with pytest.raises(Driver, match="nowhere"):
        opinion.ask(tmp_path / "nowhere", PLAN, tmp_path, prompt=1, output=1, batch=1)


@pytest.mark.parametrize(
    ("gpu", "engine"),
    [pytest.param(Gpu(name="cpu", total_bytes=2**40, bandwidth_gbs=1, native=()), "vllm", id="card"),
     pytest.param(L40S, "llama.cpp", id="engine")],
)  # fmt: skip
def test_what_it_does_not_know_is_not_asked(gpu: Gpu, engine: str, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="AIConfigurator knows"):
        opinion.arguments(plan(LLAMA_8B, gpu, engine=engine, version=""), tmp_path, prompt=1, output=1, batch=1)


@pytest.mark.parametrize("text", ["", "TTFT: 3 ms", "TTFT: soon\nTPOT: 3 ms"])
def test_what_is_no_estimate_is_none(text: str) -> None:
    assert opinion.read(text) is None
