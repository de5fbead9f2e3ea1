"""How fast is the gateway, beside what is known today? Ratios in one run; nothing is asserted.

Gateway and peers run on core 1, load generator and engine on core 0, taking turns. Work is counted per CPU-second of
the server's process tree: that holds on a noisy machine, wall-clock rates do not. Two gateways are measured: ``stoker``
has everything on (keys, records, metrics, a caller with every kind of limit, routing by prefix over two endpoints), and
``stoker-1`` what a plain router has to do (one endpoint and no limits; keys, records and metrics are always on).
"""

import argparse
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from harness import ENDLESS, Load, Running, body, build, engine, free_port, load, memory_per_stream, running, state
from peers import SETS, peer
from stall import stalls

TARGETS = {
    "requests/CPU-s": "≥ 12,000",
    "chunks/CPU-s": "≥ 120,000",
    "added p50 ms": "≤ 0.7",
    "added p99 ms": "≤ 1.5",
    "chunk delay p99 ms": "≤ 2",
    "memory MB": "≤ 60",
    "memory KiB/stream": "≤ 20",
}


def gateway(stack: ExitStack, name: str, upstream: int, *, everything: bool) -> Running:
    """Start our gateway."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    state(folder, upstream, endpoints=2 if everything else 1, limits=ENDLESS if everything else None)
    port = free_port()
    argv = [sys.executable, "-m", "stoker.gateway", "--state-dir", folder, "--listen", f"127.0.0.1:{port}"]
    return stack.enter_context(running(name, argv, port, core=1))


def measure(server: Running, seconds: float) -> dict[str, float]:
    """Take every figure of one server once."""
    asked: Load = load(server, "json", body(stream=False), connections=32, seconds=seconds)
    streamed = load(server, "stream", body(stream=True), connections=32, seconds=seconds)
    slow = load(server, "rate:50", body(stream=False), connections=16, seconds=seconds)
    paced = load(server, "stream", body("PACED ", stream=True), connections=100, seconds=max(2.5, seconds))
    wrong = asked.wrong + streamed.wrong + slow.wrong + paced.wrong
    if wrong:
        print(f"{server.name}: {wrong} answers were wrong or cut", file=sys.stderr)
    return {
        "requests/CPU-s": asked.requests / max(asked.cpu, 0.01),
        "chunks/CPU-s": streamed.chunks / max(streamed.cpu, 0.01),
        "added p50 ms": slow.latency_us[0] / 1000,
        "added p99 ms": slow.latency_us[1] / 1000,
        "chunk delay p99 ms": paced.chunk_us[2] / 1000,
        "memory MB": server.rss_mb(),
    }


def translated(server: Running, seconds: float) -> dict[str, float]:
    """Ask in another dialect than the engine speaks, and in its own: how much of the pass-through's rate is left?"""
    found = {}
    for mode, what in (("json", "requests"), ("stream", "chunks")):
        rates = []
        for path in ("/v1/chat/completions", "/v1/messages"):
            data = body(stream=mode == "stream")
            seen = load(server, mode, data, connections=32, seconds=seconds, path=path)
            if seen.wrong:
                print(f"{path}: {seen.wrong} answers were wrong or cut", file=sys.stderr)
            rates.append((seen.requests if mode == "json" else seen.chunks) / max(seen.cpu, 0.01))
        found[what] = rates[1] / rates[0]
    return found


def show(found: dict[str, dict[str, float]]) -> None:
    """Print the table; latencies are the difference to the engine asked directly."""
    direct = found.pop("direct")
    ours = found["stoker"]
    print(f"{'':20}{'target':>12}" + "".join(f"{name:>22}" for name in found))
    for figure, target in TARGETS.items():
        cells = []
        for values in found.values():
            value = values[figure] - (direct[figure] if figure.endswith("ms") else 0)
            mine = ours[figure] - (direct[figure] if figure.endswith("ms") else 0)
            ratio = "" if values is ours or figure.endswith("ms") else f" (we {mine / value:.2f}x)"
            cells.append(f"{value:,.2f}{ratio}" if figure.endswith("ms") else f"{value:,.0f}{ratio}")
        print(f"{figure:20}{target:>12}" + "".join(f"{cell:>22}" for cell in cells))


def many(server: Running, streams: int, seconds: float) -> None:
    """Keep many slow streams open: 20 tokens a second each, 100 tokens a stream, one stream after another."""
    before = server.cpu()
    seen = load(server, "stream", body("SLOW ", stream=True), connections=streams, seconds=seconds)
    told = f"{seen.wrong} of {seen.requests + seen.wrong} streams wrong or cut, {seen.chunks:,} chunks"
    used = (server.cpu() - before) / seconds
    print(
        f"{streams} streams at 20 tokens/s for {seconds:.0f} s: {told}, {used:.2f} of a core, {server.rss_mb():.0f} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", choices=tuple(SETS), default="two")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--streams", type=int, default=2000, help="how many are open when memory is measured")
    parser.add_argument("--many", type=float, default=10.0, help="seconds of many slow streams; the target names 120")
    given = parser.parse_args()
    build()
    with ExitStack() as stack:
        upstream = stack.enter_context(engine())
        ours = gateway(stack, "stoker", upstream, everything=True)
        servers = [ours, gateway(stack, "stoker-1", upstream, everything=False)]
        servers += [found for name in SETS[given.peers] if (found := peer(stack, name, upstream)) is not None]
        direct = Running("direct", upstream, ours.process)
        rounds: dict[str, list[dict[str, float]]] = {server.name: [] for server in (direct, *servers)}
        left: list[dict[str, float]] = []
        for _ in range(given.rounds):
            for server in (direct, *servers):
                rounds[server.name].append(measure(server, given.seconds))
            left.append(translated(ours, given.seconds))
        found = {
            name: {figure: statistics.median(one[figure] for one in taken) for figure in taken[0]}
            for name, taken in rounds.items()
        }
        for server in servers:
            found[server.name]["memory KiB/stream"] = memory_per_stream(server, given.streams)
        show(found)
        for what in left[0]:
            part = statistics.median(one[what] for one in left)
            print(f"translation, messages by way of chat: {part:.0%} of the pass-through's {what} (target: ≥ 40 %)")
        many(ours, given.streams, given.many)
        for name, stall in stalls(upstream).items():
            told = f"longest stall {stall.own_ms:.1f} ms of its own, {stall.clock_ms:.1f} ms by the clock (target: ≤ 5)"
            print(f"body of 10 MB, {name}: {told}; memory rose by {stall.bodies:.1f} bodies")


if __name__ == "__main__":
    main()
