"""How fast is the gateway, beside what is known today? Ratios in one run; nothing is asserted.

Gateway and peers run on core 1, load generator and engine on core 0, taking turns. Work is counted per CPU-second of
the server's process tree: that holds on a noisy machine, wall-clock rates do not.
"""

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from harness import BIN, Load, Running, body, build, engine, free_port, load, memory_per_stream, running, state

VENVS = Path(__file__).parents[1] / "build" / "peers"
PEERS = {
    "vllm-router": ("vllm-router==0.1.17", "vllm-router", ("--policy", "round_robin", "--prometheus-port", "{spare}")),
    "sglang-router": (
        "sglang-router==0.3.2",
        "sglang-router",
        ("launch", "--policy", "round_robin", "--prometheus-port", "{spare}"),
    ),
    "smg": (
        "smg==1.13.0",
        "smg",
        ("launch", "--policy", "round_robin", "--disable-tokenizer-autoload", "--prometheus-port", "{spare}"),
    ),
}
NGINX = """worker_processes 1; daemon off; master_process off; pid {bin}/nginx.pid; error_log {bin}/nginx.err;
events {{ worker_connections 4096; }}
http {{ access_log off; client_body_temp_path {bin}; proxy_temp_path {bin}; fastcgi_temp_path {bin};
uwsgi_temp_path {bin}; scgi_temp_path {bin}; upstream e {{ server 127.0.0.1:{upstream}; keepalive 256; }}
server {{ listen 127.0.0.1:{port}; keepalive_requests 1000000; location / {{ proxy_pass http://e;
proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; }} }} }}
"""
TARGETS = {
    "requests/CPU-s": "≥ 12,000",
    "chunks/CPU-s": "≥ 120,000",
    "added p50 ms": "≤ 0.7",
    "added p99 ms": "≤ 1.5",
    "chunk delay p99 ms": "≤ 2",
    "memory MB": "≤ 60",
    "memory KiB/stream": "≤ 20",
}


def peer(stack: ExitStack, name: str, upstream: int) -> Running | None:
    """Install and start a peer; None when it cannot be had here."""
    package, command, more = PEERS[name]
    venv = VENVS / name
    if not (venv / "bin" / command).exists():
        print(f"installing {package} …", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        done = subprocess.run([venv / "bin" / "pip", "install", "-q", package], check=False)
        if done.returncode or not (venv / "bin" / command).exists():
            print(f"{package} cannot be installed here; it is left out", file=sys.stderr)
            return None
    port = free_port()
    first, rest = (more[:1], more[1:]) if more[0] == "launch" else ((), more)
    words = [*first, "--worker-urls", f"http://127.0.0.1:{upstream}", "--host", "127.0.0.1", "--port", str(port), *rest]
    argv = [venv / "bin" / command, *(word.format(spare=free_port()) for word in words)]
    return stack.enter_context(running(name, argv, port, core=1))


def nginx(stack: ExitStack, upstream: int) -> Running | None:
    """Start nginx when it is installed."""
    if shutil.which("nginx") is None:
        print("nginx is not installed (apt-get install nginx-light); it is left out", file=sys.stderr)
        return None
    port = free_port()
    config = BIN / "nginx.conf"
    config.write_text(NGINX.format(bin=BIN, upstream=upstream, port=port))
    return stack.enter_context(running("nginx", ["nginx", "-p", BIN, "-c", config], port, core=1))


def gateway(stack: ExitStack, upstream: int) -> Running:
    """Start our gateway: authentication, metering and routing on."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    state(folder, upstream)
    port = free_port()
    argv = [sys.executable, "-m", "stoker.gateway", "--state-dir", folder, "--listen", f"127.0.0.1:{port}"]
    return stack.enter_context(running("stoker", argv, port, core=1))


def measure(server: Running, seconds: float) -> dict[str, float]:
    """Take every figure of one server once."""
    asked: Load = load(server, "json", body(stream=False), connections=32, seconds=seconds)
    streamed = load(server, "stream", body(stream=True), connections=32, seconds=seconds)
    slow = load(server, "rate", body(stream=False), connections=16, seconds=seconds, rate=50)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", choices=("none", "two", "all"), default="two")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--streams", type=int, default=2000, help="how many are open when memory is measured")
    given = parser.parse_args()
    build()
    wanted = {"none": (), "two": ("vllm-router",), "all": tuple(PEERS)}[given.peers]
    with ExitStack() as stack:
        upstream = stack.enter_context(engine())
        servers = [gateway(stack, upstream), *(peer(stack, name, upstream) for name in wanted)]
        if given.peers != "none":
            servers.append(nginx(stack, upstream))
        here = [server for server in servers if server is not None]
        direct = Running("direct", upstream, here[0].process)
        rounds: dict[str, list[dict[str, float]]] = {server.name: [] for server in (direct, *here)}
        for _ in range(given.rounds):
            for server in (direct, *here):
                rounds[server.name].append(measure(server, given.seconds))
        found = {
            name: {figure: statistics.median(one[figure] for one in taken) for figure in taken[0]}
            for name, taken in rounds.items()
        }
        for server in here:
            found[server.name]["memory KiB/stream"] = memory_per_stream(server, given.streams)
    show(found)


if __name__ == "__main__":
    main()
