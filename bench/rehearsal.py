"""Does a client measure the model's own times? 256 streams of 40 tokens a second; engine and client on a core each.

Nothing is asserted. The engine says for each request what the batching model itself gives; the generator of ``stoker
bench`` says what it measured from the moment at which the request was due.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import uvloop

from stoker.bench.load.generator import Generator, Limits, Load
from stoker.bench.load.render import render
from stoker.bench.load.script import Burst
from stoker.bench.load.talk import Costs, Style
from stoker.bench.load.target import Target
from stoker.bench.load.words import Book
from stoker.bench.selfcheck.checks import asks
from stoker.decide.measure.warm import percentile

STREAMS, TOKENS = 256, 400
RIG = {
    "kv_cache_tokens": 400_000,
    "sequences": STREAMS,
    "batch_tokens": 8192,
    # 100,000 tokens of prompts a second, and 25 ms a step at 256 sequences: 40 tokens a second for each
    "linear": {"base_seconds": 0.0122, "per_sequence_seconds": 0.00005, "per_prefill_token_seconds": 0.00001},
}


def main() -> None:
    """Measure once and print."""
    with tempfile.TemporaryDirectory() as folder:
        rig, truth = Path(folder) / "rig.json", Path(folder) / "truth.jsonl"
        rig.write_text(json.dumps(RIG))
        argv = ["taskset", "-c", "0", sys.executable, "-m", "stoker.rehearse", "--port", "0"]
        engine = subprocess.Popen([*argv, "--rig", rig, "--truth", truth], stderr=subprocess.PIPE, text=True)
        for line in engine.stderr or ():
            if "listening on " in line:
                break
        os.sched_setaffinity(0, {1})
        target = Target(url="http://" + line.partition("listening on ")[2].partition(",")[0], model="rehearsal")
        style = Style(render=render(target, exact=True), book=Book(), costs=Costs(), salt="r", tools=False)
        script = Burst(
            [ask._replace(prompt_tokens=1000) for ask in asks(STREAMS * 2, output=TOKENS)], STREAMS, apart_seconds=0.01
        )
        made = Generator(target, style, script, Limits(window=120.0), model_answers=False)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            taken = runner.run(made.play(Load(value=STREAMS, unit="concurrency", seed=1)))
        engine.terminate()
        engine.wait()
        model = [json.loads(line) for line in truth.read_text().splitlines()]
    first, true = [s.first_token_seconds for s in taken.samples], [m["model_first_token_seconds"] for m in model]
    pace = [s.tpot_seconds or 0.0 for s in taken.samples]
    true_pace = [(m["model_last_token_seconds"] - m["model_first_token_seconds"]) / (m["tokens"] - 1) for m in model]
    rows = (
        ("mean TTFT", sum(first) / len(first), sum(true) / len(true)),
        ("p99 TTFT", percentile(first, 0.99), percentile(true, 0.99)),
        ("mean TPOT", sum(pace) / len(pace), sum(true_pace) / len(true_pace)),
    )
    print(f"{len(first)} requests, {sum(s.tokens.output for s in taken.samples):,} tokens (target: within 2 %)")
    for name, seen, own in rows:
        print(f"{name:10} measured {seen * 1000:8.2f} ms, the model's own {own * 1000:8.2f} ms: {seen / own - 1:+.2%}")


if __name__ == "__main__":
    main()
