"""``python -m stoker.rehearse``: start the rehearsal engine, scripted alone or with a batching machine behind."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path

import msgspec
import uvloop

from stoker.base.errors import Fault, Invalid
from stoker.predict.batching.machine import Machine
from stoker.rehearse.answer import Engine
from stoker.rehearse.batch import birth
from stoker.rehearse.batch import rig as rigs
from stoker.rehearse.batch.cards import Exporter
from stoker.rehearse.batch.clockwork import Clockwork
from stoker.rehearse.batch.prefix import Prefixes
from stoker.rehearse.decay import decay
from stoker.rehearse.pace import Pace
from stoker.rehearse.request import Request
from stoker.rehearse.script import Script, parse
from stoker.rehearse.server import Behind, Server, Watch
from stoker.rehearse.talk import Incoming, die

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
    parser.add_argument("--max-sequences", type=int, default=8)
    parser.add_argument("--context-tokens", type=int, default=0)
    parser.add_argument("--tool-parser", default="", help="any name: tool markup is parsed, whatever the script says")
    parser.add_argument("--reasoning-parser", default="", help="the same for reasoning markup")
    parser.add_argument("--record", default="", help="write each request there as a line of JSON, its prompt too")
    parser.add_argument("--rig", default="", help="a JSON file: simulate an engine with these sizes and step times")
    parser.add_argument("--speed", type=float, default=1.0, help="so many seconds of the rig pass in one of ours")
    parser.add_argument("--truth", default="", help="write there when each answer's tokens really went out")
    return parser.parse_args(argv)


async def _serve(asked: argparse.Namespace, engine: Engine, secret: str) -> int:
    script = _rereading(Path(asked.script)) if asked.script else _never_changing
    note = _recording(Path(asked.record)) if asked.record else None
    told = _telling(Path(asked.truth)) if asked.truth else _quiet
    watch = Watch(note, told)
    server = Server(engine, secret=secret, slots=asked.max_sequences, script=script, watch=watch)
    beside = _beside(asked, engine, server)
    stop = asyncio.Event()

    def asked_to_stop() -> None:
        if not script().ignore_sigterm:
            stop.set()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, asked_to_stop)
    loop.add_signal_handler(signal.SIGINT, stop.set)
    if script().crash_at_start:
        die("EngineCore failed to start (scripted)")
    if server.batch is not None:
        for line in birth.lines(server.batch.rig, model=asked.model):
            await asyncio.sleep(line.seconds / asked.speed)
            sys.stderr.write(f"{line.text}\n")
        sys.stderr.flush()
    running = [asyncio.create_task(work) for work in (*beside, decay(script))]
    listening = await asyncio.start_server(server.connection, "127.0.0.1", asked.port, backlog=1024)
    _say(f"listening on 127.0.0.1:{listening.sockets[0].getsockname()[1]}, model {engine.model}")
    await stop.wait()
    listening.close()
    for task in running:
        task.cancel()
    return 0


def _beside(asked: argparse.Namespace, engine: Engine, server: Server) -> list[Coroutine[object, object, None]]:
    """Put the batching machine behind the server, where a rig is given. Raises Invalid."""
    if asked.speed <= 0:
        raise Invalid(Fault(message="a speed is a number above 0", field="--speed"))
    if not asked.rig:
        return []
    rig = rigs.load(Path(asked.rig))
    if engine.context_tokens and not rig.context_tokens:
        rig = msgspec.structs.replace(rig, context_tokens=engine.context_tokens)
    clockwork = Clockwork(Machine(rig.limits, rigs.step_time(rig)), speed=asked.speed)
    server.batch = Behind(rig, clockwork, Prefixes(rig.block_tokens), Exporter(clockwork, rig))
    return [clockwork.run()]


_PLAIN = Script()


def _never_changing() -> Script:
    return _PLAIN


def _rereading(path: Path) -> Callable[[], Script]:
    """Read a script again whenever its file changed. While it is absent or wrong, the last good one holds."""
    kept: dict[str, object] = {"seen": None, "script": Script()}

    def current() -> Script:
        try:
            status = path.stat()
            seen = (status.st_mtime_ns, status.st_size, status.st_ino)
            if seen != kept["seen"]:
                kept.update(seen=seen, script=parse(path.read_bytes()))
        except (OSError, Invalid) as error:
            _say(f"script {path}: {error}; the last good one holds")
        script = kept["script"]
        return script if isinstance(script, Script) else Script()

    return current


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
    print(f"rehearse: {message}", file=sys.stderr, flush=True)  # noqa: T201 - the engine's log


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
