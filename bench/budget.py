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
from harness import ENDLESS, Running, body, build, engine, free_port, load, running, state

from stoker.facts.routes import Limits

START = "\nimport sys\nfrom stoker.gateway.__main__ import main\nsys.exit(main())\n"
OFF = {
    "everything on": "",
    "ledger record (build, frame, CRC, write to the spool)": (
        "from stoker.gateway.meter import Meter\nMeter.write = lambda self, record, client=None: True\n"
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
        "from stoker.gateway.app import App\n"
        "App._who = lambda self, exchange, headers, now: next(iter(self.identities._by_hash.values()))\n"
    ),
    "route choice": (
        "import stoker.gateway.steer.seat as s\nfrom stoker.decide.route import Choice, Why\n"
        "ONE = Choice('e0', Why.FREE)\ns.route = lambda *a, **k: ONE\n"
    ),
    "output cap and other splices": (
        "import stoker.gateway.body as b\nfrom stoker.wire.request import Change\n"
        "b.prepare = lambda body, asked, **k: Change(body=body, splices=())\n"
    ),
    "reading the answer (usage, finish, flags)": (
        "from stoker.wire.follow import Follow\nfrom stoker.wire.scan.chat import Chat\n"
        "def whole(self, body, now):\n    self._scanner._body = body\n    self.finished = True\n    self.said = 1\n"
        "    return True\nFollow.whole = whole\n"
    ),
}


MORE: dict[str, tuple[int, int, Limits | None]] = {  # slots of an endpoint, endpoints, limits of the caller
    "more: slots in shared memory": (1000, 1, None),
    "more: caller with four limits": (0, 1, ENDLESS),
    "more: routing by prefix over two endpoints": (0, 2, None),
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
        for name, patch in {**OFF, **dict.fromkeys(MORE, "")}.items():
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            slots, endpoints, limits = MORE.get(name, (0, 1, None))
            state(folder, upstream, slots=slots, endpoints=endpoints, limits=limits)
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
            print(f"{name:58} {value - whole if name in MORE else whole - value:12.1f}")


if __name__ == "__main__":
    main()
