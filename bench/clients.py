"""Which client measures what is there? Ours and others, each on an engine whose truth is known. Nothing is asserted.

Twice a hundred requests over eight streams: whole answers of 64 tokens, and a mix in which a fifth is refused, cut,
reset or has an error inside. Client and engine have a core each. ``--peers all`` installs the others' packages, each
into an environment of its own; that takes minutes and gigabytes, so it is not done unasked.
"""

import argparse
import asyncio
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import uvloop

sys.path.insert(0, str(Path(__file__).parent))
from peers import VENVS

from stoker.bench.load.generator import Generator, Limits, Load
from stoker.bench.load.render import render
from stoker.bench.load.script import Burst
from stoker.bench.load.talk import Costs, Style
from stoker.bench.load.target import Target
from stoker.bench.load.words import Book
from stoker.bench.selfcheck.checks import asks
from stoker.decide.measure.summary import summarise
from stoker.drivers.hosts.rehearsal import Known, known

REQUESTS, STREAMS, TOKENS = 100, 8, 64
STEADY = {"tokens": TOKENS, "tokens_per_second": 100.0, "first_token_seconds": 0.07, "calls": 0}
FAULTS = (
    {"status": 429},
    {"cut_after_tokens": 32},
    {"cut_after_tokens": 32, "cut": "reset"},
    {"error_after_tokens": 32},
)
FAULTY = {**STEADY, "rota": [*FAULTS, *[{}] * 16]}
LONGEST_SECONDS = 600


@dataclass
class Seen:
    """What a client reported. Seconds; 0: it does not say."""

    ttft: float
    ttft_p99: float
    tpot: float
    tokens_per_second: float
    good: int
    cpu: float = 0.0


@dataclass
class Client:
    """How a client is called, and how its result is read."""

    name: str
    argv: Callable[[str, Path], Sequence[str | Path]]
    read: Callable[[Path], Seen]


def ours(url: str, out: Path) -> None:
    """Measure with the generator of `stoker bench`, in a process of its own as all others."""
    target = Target(url=url, model="rehearsal")
    style = Style(render=render(target), book=Book(), costs=Costs(), salt="clients", tools=False)
    script = Burst(asks(REQUESTS, output=TOKENS), STREAMS)
    made = Generator(target, style, script, Limits(window=120.0), model_answers=False)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        taken = runner.run(made.play(Load(value=STREAMS, unit="concurrency", seed=1)))
    step = summarise(taken, None, warm_seconds=0.0)
    seen = Seen(
        ttft=step.times.ttft.mean,
        ttft_p99=step.times.ttft.p99,
        tpot=step.times.tpot.mean,
        tokens_per_second=step.tokens.per_second,
        good=sum(sample.good for sample in taken.samples),
    )
    out.write_text(json.dumps(vars(seen)))


async def sdk(url: str) -> Seen:
    """Measure with the openai package, as most scripts of one's own do."""
    import openai  # noqa: PLC0415 -- only this client needs it, and reading it takes a second

    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    first, pace, left, good, tokens = [], [], iter(range(REQUESTS)), 0, 0

    async def work() -> None:
        nonlocal good, tokens
        for number in left:
            begun = perf_counter()
            try:
                stream = await client.chat.completions.create(
                    model="rehearsal", messages=[{"role": "user", "content": f"Tell {number}."}], stream=True
                )
                times = [perf_counter() async for c in stream if c.choices and c.choices[0].delta.content]
            except openai.OpenAIError:
                continue
            good += 1
            tokens += len(times)
            first.append(times[0] - begun)
            pace.append((times[-1] - times[0]) / max(1, len(times) - 1))

    started = perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(STREAMS):
            group.create_task(work())
    rate = tokens / (perf_counter() - started)
    tail = sorted(first)[int(0.99 * len(first))]
    return Seen(statistics.fmean(first), tail, statistics.fmean(pace), rate, good)


def own(way: str) -> Callable[[str, Path], Sequence[str | Path]]:
    """Call this very file."""
    return lambda url, folder: (sys.executable, __file__, way, url, folder / "seen.json")


def read_own(folder: Path) -> Seen:
    """Read what this file wrote."""
    return Seen(**json.loads((folder / "seen.json").read_text()))


def installed(package: str, *, python: str = sys.executable) -> Path | None:
    """Install a package into an environment of its own; None, and the reason printed, where that cannot be done."""
    venv = VENVS / package.partition("==")[0]
    mark = venv / package
    program = shutil.which(python)
    if program is None:
        print(f"{package} needs {python}, which is not here; it is left out", file=sys.stderr)
        return None
    if not mark.exists():
        print(f"installing {package} …", file=sys.stderr)
        subprocess.run([program, "-m", "venv", venv], check=True)
        if subprocess.run([venv / "bin" / "pip", "install", "-q", package], check=False).returncode:
            print(f"{package} cannot be installed here; it is left out", file=sys.stderr)
            return None
        mark.touch()
    return venv / "bin"


def aiperf() -> Client | None:
    """Make aiperf ready."""
    found = installed("aiperf==0.13.0")
    if found is None:
        return None

    def argv(url: str, folder: Path) -> Sequence[str | Path]:
        return (
            *(found / "aiperf", "profile", "--model", "rehearsal", "--url", url, "--endpoint-type", "chat"),
            *("--streaming", "--concurrency", str(STREAMS), "--request-count", str(REQUESTS), "--ui", "none"),
            *("--tokenizer", tokenizer(), "--synthetic-input-tokens-mean", "60", "--output-tokens-mean", str(TOKENS)),
            *("--artifact-dir", folder),
        )

    def read(folder: Path) -> Seen:
        value = json.loads(next(folder.rglob("profile_export_aiperf.json")).read_text())
        first, pace = value["time_to_first_token"], value["inter_token_latency"]
        return Seen(
            ttft=first["avg"] / 1000,
            ttft_p99=first["p99"] / 1000,
            tpot=pace["avg"] / 1000,
            tokens_per_second=value["output_token_throughput"]["avg"],
            good=round(value["request_count"]["avg"]),
        )

    return Client("aiperf 0.13", argv, read)


def inference_perf() -> Client | None:
    """Make inference-perf ready; it needs Python 3.12."""
    found = installed("inference-perf==0.7.0", python="python3.12")
    if found is None:
        return None

    def argv(url: str, folder: Path) -> Sequence[str | Path]:
        fixed = {"type": "fixed", "std_dev": 0, "total_count": REQUESTS}
        config = {
            "api": {"type": "completion", "streaming": True},  # its random prompts are not for chat
            "data": {
                "type": "random",
                "input_distribution": {**fixed, "min": 60, "max": 60, "mean": 60},
                "output_distribution": {**fixed, "min": TOKENS, "max": TOKENS, "mean": TOKENS},
            },
            "load": {
                "type": "concurrent",
                "num_workers": 1,
                "stages": [{"num_requests": REQUESTS, "concurrency_level": STREAMS}],
            },
            "server": {"type": "vllm", "model_name": "rehearsal", "base_url": url, "ignore_eos": True},
            "tokenizer": {"pretrained_model_name_or_path": str(tokenizer())},
            "storage": {"local_storage": {"path": str(folder / "out")}},
        }
        (folder / "config.yml").write_text(json.dumps(config))  # JSON is YAML
        return (found / "inference-perf", "--config_file", folder / "config.yml")

    def read(folder: Path) -> Seen:
        good = json.loads((folder / "out" / "summary_lifecycle_metrics.json").read_text())["successes"]
        latency = good["latency"]
        return Seen(
            ttft=latency["time_to_first_token"]["mean"],
            ttft_p99=latency["time_to_first_token"]["p99"],
            tpot=latency["inter_token_latency"]["mean"],
            tokens_per_second=good["throughput"]["output_tokens_per_sec"],
            good=good["count"],
        )

    return Client("inference-perf", argv, read)


def guidellm() -> Client | None:
    """Leave it out, and say why."""
    print("guidellm brings 5.7 GB of CUDA packages; it is left out", file=sys.stderr)
    return None


def tokenizer() -> Path:
    """Make a tokenizer to which a word is a token, as to the engine: others need one, also where the server counts."""
    from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: PLC0415 -- only where others are measured

    folder = VENVS / "tokenizer"
    folder.mkdir(parents=True, exist_ok=True)
    words = ["[UNK]", *(f"word{i}" for i in range(1000))]
    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))  # noqa: S106 -- no secret
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]", "model_max_length": 100_000}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


CLIENTS = (
    Client("stoker bench", own("--ours"), read_own),
    Client("openai package", own("--sdk"), read_own),
)
LARGE = (aiperf, inference_perf, guidellm)


def measure(engine: Known, client: Client) -> dict[str, Seen]:
    """Let a client measure both behaviours."""
    found = {}
    for name, behaviour in (("steady", STEADY), ("faulty", FAULTY)):
        engine.play(behaviour)
        with tempfile.TemporaryDirectory() as folder:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            argv = [str(word) for word in client.argv(engine.url, Path(folder))]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            try:
                seen = client.read(Path(folder))
            except (OSError, KeyError, StopIteration) as error:
                print(f"{client.name}, {name}: {error!r}\n{done.stdout[-800:]}{done.stderr[-800:]}", file=sys.stderr)
                return {}
            if name == "steady":
                found["engine"] = truth(engine)
            seen.cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        found[name] = seen
    return found


def truth(engine: Known) -> Seen:
    """Say what the engine itself did when it was steady."""
    real = engine.truth()
    first = sorted(one.first_token_seconds for one in real)
    pace = statistics.fmean((one.last_token_seconds - one.first_token_seconds) / (one.tokens - 1) for one in real)
    each = statistics.fmean(one.last_token_seconds for one in real)
    return Seen(statistics.fmean(first), first[int(0.99 * len(first))], pace, STREAMS * TOKENS / each, REQUESTS)


def line(name: str, seen: Seen, good: int | str) -> str:
    """Write a row."""
    return (
        f"{name:16}{seen.ttft * 1000:10.1f}{seen.ttft_p99 * 1000:10.1f}{seen.tpot * 1000:10.2f}"
        f"{seen.tokens_per_second:10.0f}{good:>22}{f'{seen.cpu:.1f}' if seen.cpu else '':>12}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", choices=("none", "two", "all"), default="two")
    parser.add_argument("--ours", nargs=2)
    parser.add_argument("--sdk", nargs=2)
    given = parser.parse_args()
    if given.ours:
        ours(given.ours[0], Path(given.ours[1]))
        return
    if given.sdk:
        Path(given.sdk[1]).write_text(json.dumps(vars(asyncio.run(sdk(given.sdk[0])))))
        return
    clients = list(CLIENTS[: 1 if given.peers == "none" else 2])
    if given.peers == "all":
        clients += [made for large in LARGE if (made := large()) is not None]
    else:
        print("aiperf and inference-perf are large: PEERS=all installs and measures them", file=sys.stderr)
    with known(slots=64) as engine:
        true, rows = Seen(0, 0, 0, 0, 0), []
        for client in clients:
            found = measure(engine, client)
            if not found:
                continue
            if client is clients[0]:
                true = found.pop("engine")
            rows.append(line(client.name, found["steady"], f"{found['faulty'].good} of {REQUESTS}"))
    print(f"{'':16}{'TTFT ms':>10}{'p99':>10}{'TPOT ms':>10}{'tok/s':>10}{'good in the mix':>22}{'CPU s':>12}")
    print(line("the engine", true, f"80 of {REQUESTS}"))
    print("\n".join(rows))


if __name__ == "__main__":
    main()
