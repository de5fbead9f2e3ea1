"""``python -m stoker.rehearse``: start the rehearsal engine, scripted alone or with a batching machine behind."""

import argparse
import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path

import msgspec
import uvloop

from stoker.base.errors import Fault, Invalid
from stoker.rehearse.answer import Engine
from stoker.rehearse.batch import birth
from stoker.rehearse.batch import rig as rigs
from stoker.rehearse.batch.behind import Behind, behind
from stoker.rehearse.batch.voice import speak
from stoker.rehearse.decay import decay
from stoker.rehearse.pace import Pace
from stoker.rehearse.request import Request
from stoker.rehearse.reread import PLAIN, Rereading
from stoker.rehearse.script import Script
from stoker.rehearse.server import Server, Watch
from stoker.rehearse.talk import Incoming, die

_SLOTS = 8
_SECRET = ("authorization", "x-api-key")


def main(argv: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT."""
    asked = _arguments(argv)
    secret = Path(asked.secret_file).read_text().strip() if asked.secret_file else ""
    engine = Engine(
        model=asked.model,
        context_tokens=asked.context_tokens,
        tool_parser=bool(asked.tool_parser),
        reasoning_parser=bool(asked.reasoning_parser),
    )
    try:
        return uvloop.run(_serve(asked, engine, secret))
    except OSError as error:
        _say(str(error))
        return 1
    except Invalid as error:
        _say(str(error))
        return 2


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="rehearse", allow_abbrev=False)
    parser.add_argument("--port", type=int, required=True, help="0: any free one; it is printed")
    parser.add_argument("--script", default="", help="a JSON file, read again when it changes")
    parser.add_argument("--secret-file", default="", help="without the key in it every call but /health is refused")
    parser.add_argument("--model", default="rehearsal")
    parser.add_argument("--max-sequences", type=int, default=0, help=f"at once; a rig's own, else {_SLOTS}")
    parser.add_argument("--context-tokens", type=int, default=0)
    parser.add_argument("--tool-parser", default="", help="any name: tool markup is parsed, whatever the script says")
    parser.add_argument("--reasoning-parser", default="", help="the same for reasoning markup")
    parser.add_argument("--record", default="", help="write each request there as a line of JSON, its prompt too")
    parser.add_argument("--rig", default="", help="a JSON file: simulate an engine with these sizes and step times")
    parser.add_argument("--speed", type=float, default=1.0, help="so many seconds of the rig pass in one of ours")
    parser.add_argument("--live", action="store_true", help="one line for a person instead of an engine's log")
    parser.add_argument("--truth", default="", help="write there when each answer's tokens really went out")
    return parser.parse_args(argv)


async def _serve(asked: argparse.Namespace, engine: Engine, secret: str) -> int:
    script = Rereading(Path(asked.script), _say) if asked.script else _never_changing
    note = _recording(Path(asked.record)) if asked.record else None
    told = _telling(Path(asked.truth)) if asked.truth else _quiet
    slots = asked.max_sequences or _SLOTS
    server = Server(engine, secret=secret, slots=slots, script=script, watch=Watch(note, told))
    server.batch = _batch(asked)
    stop = _stopping(script)
    if script().crash_at_start:
        die("EngineCore failed to start (scripted)")
    if server.batch is not None and not await _born(server.batch, asked, stop):
        return 0
    beside: list[Coroutine[object, object, None]] = [decay(script)]
    if server.batch is not None:
        beside += [server.batch.clockwork.run(), speak(server.batch, _write, live=asked.live)]
    running = [asyncio.create_task(work) for work in beside]
    listening = await asyncio.start_server(server.connection, "127.0.0.1", asked.port, backlog=1024)
    _say(f"listening on 127.0.0.1:{listening.sockets[0].getsockname()[1]}, model {engine.model}")
    await stop.wait()
    listening.close()
    for task in running:
        task.cancel()
    return 0


def _stopping(script: Callable[[], Script]) -> asyncio.Event:
    """Hear SIGTERM, unless the script has none of it, and SIGINT."""
    stop = asyncio.Event()

    def asked_to_stop() -> None:
        if not script().ignore_sigterm:
            stop.set()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, asked_to_stop)
    loop.add_signal_handler(signal.SIGINT, stop.set)
    return stop


async def _born(batch: Behind, asked: argparse.Namespace, stop: asyncio.Event) -> bool:
    """Go through the phases of a start, which take minutes at speed 1; False: it was ended before they had passed."""
    for line in birth.lines(batch.rig, model=asked.model):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), line.seconds / asked.speed)
        if stop.is_set():
            return False
        _write(f"{line.text}\n")
    return True


def _batch(asked: argparse.Namespace) -> Behind | None:
    """Make the batching machine, where a rig is given. What the command line says goes before it. Raises Invalid."""
    if asked.speed <= 0:
        raise Invalid(Fault(message="a speed is a number above 0", field="--speed"))
    if not asked.rig:
        return None
    rig = rigs.load(Path(asked.rig))
    rig = msgspec.structs.replace(
        rig,
        context_tokens=asked.context_tokens or rig.context_tokens,
        sequences=asked.max_sequences or rig.sequences,
    )
    return behind(rig, speed=asked.speed)


def _never_changing() -> Script:
    return PLAIN


def _recording(path: Path) -> Callable[[Incoming, Request], None]:
    """Write down what came in, so that a rehearsal can tell what reached the engine, and how often."""

    def note(incoming: Incoming, request: Request) -> None:
        headers = {name: value for name, value in incoming.headers.items() if name not in _SECRET}
        line = {"number": request.number, "path": incoming.path, "headers": headers, "answered": request.answered}
        with path.open("ab") as lines:
            lines.write(msgspec.json.encode({**line, "body": msgspec.Raw(incoming.body)}) + b"\n")

    return note


def _telling(path: Path) -> Callable[[Pace], None]:
    """Write down when tokens went out, so that a client which measured them can be checked."""
    lines = path.open("ab", buffering=0)

    def told(pace: Pace) -> None:
        lines.write(msgspec.json.encode(pace.truth) + b"\n")

    return told


def _quiet(_pace: Pace) -> None:
    return


def _say(message: str) -> None:
    _write(f"rehearse: {message}\n")


def _write(text: str) -> None:
    """Write to the engine's log, which is its standard error."""
    sys.stderr.write(text)
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
