"""A deployment rehearsed: the simulated engine behind the gateway, agents in front, their trace played again."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.e2e import manifests
from tests.e2e.machine import Machine

from stoker.bench import result as results

RIG = {
    "kv_cache_tokens": 400_000,
    "sequences": 16,
    "batch_tokens": 4096,
    "linear": {"base_seconds": 0.002, "per_prefill_token_seconds": 0.00001},
}


def bench(made: Machine, *words: str) -> None:
    argv = [sys.executable, "-m", "stoker.cli.main", "bench", "run", made.url, "--key", made.key, *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(180)
def test_agents_on_a_rehearsed_deployment_and_their_trace_again(fresh: Machine, tmp_path: Path) -> None:
    rig = tmp_path / "rig.json"
    rig.write_text(json.dumps(RIG))
    fresh.start()
    deployment = manifests.scripted("demo", engine={"extraArgs": ["--rig", str(rig)]})
    fresh.ok("apply", "-f", "-", stdin=manifests.text(deployment, manifests.service("demo"), manifests.gateway()))
    fresh.wait("it serves", lambda: fresh.condition("md", "demo", "Ready")["status"] == "True")

    first, again, trace = tmp_path / "first", tmp_path / "again", tmp_path / "t.jsonl"
    bench(
        fresh, "--profile", "agent", "--scale", "64", "-c", "4", "--duration", "8s", "--ignore-eos", "--out", str(first)
    )
    (engine,) = fresh.pids("stoker.rehearse")
    (controller,) = fresh.pids("stoker.control")
    os.kill(controller, signal.SIGKILL)
    said = fresh.ok("usage", "export", "--trace", str(trace)) if _comes_back(fresh) else ""
    assert "sessions; play them with" in said
    assert fresh.pids("stoker.rehearse") == [engine]  # adopted, not restarted

    bench(fresh, "--trace", str(trace), "--speed", "1", "--ignore-eos", "--out", str(again))
    one, two = (results.read(folder) for folder in (first, again))
    before, after = (
        [s.tokens for s in results.samples(folder, found)[0] if s.tokens.prompt]
        for folder, found in ((first, one), (again, two))
    )
    for share in (0.5, 0.9):
        want, got = (sorted(t.prompt for t in side)[int(share * (len(side) - 1))] for side in (before, after))
        assert got == pytest.approx(want, rel=0.05)
    cached = [sum(t.cached for t in side) / sum(t.prompt for t in side) for side in (before, after)]
    assert cached[0] > 0.3
    assert cached[1] == pytest.approx(cached[0], abs=0.03)


def _comes_back(made: Machine) -> bool:
    made.wait("the controller is back", lambda: made.run("get", "mr").returncode == 0)
    return True
