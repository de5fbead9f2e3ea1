"""What does each feature of the data path cost? The real gateway, with one feature after another taken out.

``python bench/budget.py``: each variant is a gateway process in which one function is replaced before it starts; the
difference to the whole is the feature's price in CPU time a request. Nothing is asserted.
"""

import argparse
import statistics
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from harness import Running, body, build, engine, free_port, load, running, state

START = "\nimport sys\nfrom stoker.gateway.__main__ import main\nsys.exit(main())\n"
OFF = {
    "everything on": "",
    "ledger record (build, frame, CRC, write to the spool)": (
        "from stoker.gateway.meter import Meter\nMeter.write = lambda self, record: True\n"
    ),
    "spool alone (frame, CRC, write)": (
        "from stoker.drivers.spool import Spool\nSpool.append = lambda self, record: None\n"
    ),
    "metrics (counters and histograms)": (
        "from stoker.gateway.meter import Meter\nMeter._count = lambda self, record: None\n"
    ),
    "row in flight (survives kill -9)": (
        "from stoker.drivers.live import Slot\nSlot.begin = lambda self, r: -1\nSlot.end = lambda self, r: None\n"
    ),
    "prompt hashes, session, turn": (
        "from stoker.gateway.app import App\n"
        "def describe(self, ticket, dialect, asked):\n"
        "    ticket.model = asked.model; ticket.stream = bool(asked.stream) and dialect.streams\n"
        "App._describe = describe\n"
    ),
    "key check (SHA-256, validity)": (
        "from stoker.gateway.identity import Identities\n"
        "Identities.identify = lambda self, headers, now: next(iter(self._by_hash.values()))\n"
    ),
    "route choice": (
        "import stoker.gateway.forward as f\nfrom stoker.decide.route import Choice, Why\nONE = Choice('e', Why.FREE)\n"
        "f.route = lambda *a, **k: ONE\n"
    ),
    "output cap and other splices": (
        "import stoker.gateway.body as b\nfrom stoker.wire.request import Change\n"
        "b.prepare = lambda body, asked, **k: Change(body=body, splices=())\n"
    ),
    "reading the answer (usage, finish, flags)": (
        "from stoker.wire.stream import Follow\nFollow.whole = lambda self, body, now: True\n"
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    given = parser.parse_args()
    build()
    with ExitStack() as stack:
        upstream = stack.enter_context(engine())
        variants: dict[str, Running] = {}
        for name, patch in {**OFF, "with slots in shared memory": ""}.items():
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            state(folder, upstream, slots=1000 if "slots" in name else 0)
            port = free_port()
            argv = [sys.executable, "-c", patch + START, "--state-dir", folder, "--listen", f"127.0.0.1:{port}"]
            variants[name] = stack.enter_context(running(f"variant-{len(variants)}", argv, port, core=1))
        costs: dict[str, list[float]] = {name: [] for name in variants}
        for _ in range(given.rounds):
            for name, server in variants.items():
                seen = load(server, "json", body(stream=False), connections=32, seconds=given.seconds)
                costs[name].append(seen.cpu / max(1, seen.requests) * 1e6)
    middle = {name: statistics.median(values) for name, values in costs.items()}
    whole = middle["everything on"]
    print(f"{'feature':58} {'µs a request':>12}")
    print(f"{'everything on':58} {whole:12.1f}   = {1e6 / whole:,.0f} requests per CPU-second")
    for name, value in middle.items():
        if name != "everything on":
            print(f"{name:58} {abs(whole - value) if 'slots' in name else whole - value:12.1f}")


if __name__ == "__main__":
    main()
