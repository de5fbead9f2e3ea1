"""Carry out the events of answers over HTTP/1.1, and count what an engine counts."""

import asyncio
import hmac
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from functools import partial

import msgspec

from stoker.base import clock
from stoker.rehearse.answer import Engine, answer, composed
from stoker.rehearse.batch import pages
from stoker.rehearse.batch.behind import Behind
from stoker.rehearse.compose import Composition
from stoker.rehearse.dialects.base import Refusal, refusal_body
from stoker.rehearse.event import Crash, Cut, End, Event, Head, Send, Wait
from stoker.rehearse.pace import Pace
from stoker.rehearse.request import PATHS, Request, read
from stoker.rehearse.script import Script, told
from stoker.rehearse.talk import (
    JSON,
    PROMETHEUS,
    Incoming,
    Peer,
    cut,
    die,
    error,
    head,
    receive,
    reply,
    until_gone,
    write,
)

_REPEATED = 64  # tokens of an answer that goes round in circles


@dataclass(slots=True)
class Counts:
    """What the metrics page tells."""

    running: int = 0
    waiting: int = 0
    requests: int = 0
    prompt_tokens: int = 0
    generated: int = 0
    finished: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Watch:
    """Who hears of requests that come in, and of when an answer's tokens went out."""

    note: Callable[[Incoming, Request], None] | None = None
    told: Callable[[Pace], None] = lambda _pace: None


_UNWATCHED = Watch()


class Server:
    """The scripted engine. ``script`` is asked anew for each request."""

    def __init__(
        self,
        engine: Engine,
        *,
        secret: str,
        slots: int,
        script: Callable[[], Script],
        watch: Watch = _UNWATCHED,
    ) -> None:
        self.batch: Behind | None = None
        self._began = clock.mono()
        self.engine = engine
        self.secret = secret
        self.slots = slots
        self.script = script
        self.note = watch.note
        self.told = watch.told
        self._played = script()
        self._before = 0
        self.counts = Counts()
        self._free = asyncio.Semaphore(slots)

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it ends."""
        peer = Peer(reader, writer)
        try:
            while (incoming := await receive(peer)) is not None:
                if not await self._serve(incoming, peer):
                    break
        except (ConnectionError, ValueError):
            pass  # the client went, or spoke no HTTP: nobody is left to be told
        except asyncio.CancelledError:
            pass  # the process ends; a task that ends cancelled would fill the log with its trace
        finally:
            writer.close()

    async def _serve(self, incoming: Incoming, peer: Peer) -> bool:
        """Answer one request; False when the connection is of no more use."""
        script = self.script()
        if incoming.path == "/health":
            await asyncio.sleep(script.health_seconds)
            return reply(peer, script.health_status, b"")
        if not self._known(incoming):
            return error(peer, 401, "Unauthorized")
        page = self._page(incoming, script)
        if page is not None:
            return reply(peer, 200, page[0], kind=page[1])
        if clock.mono() - self._began < script.ready_after_seconds:
            return error(peer, 503, "the engine is not ready yet", PATHS.get(incoming.path, ""))
        return await self._ask(incoming, script, peer)

    def _page(self, incoming: Incoming, script: Script) -> tuple[bytes, str] | None:
        """Write what is only read, with its type; None: it is none of these."""
        match incoming.path:
            case "/metrics":
                return self._metrics().encode(), PROMETHEUS
            case "/dcgm/metrics" if self.batch is not None:
                return self.batch.exporter.page().encode(), PROMETHEUS
            case "/version" | "/server_info":
                told = self.batch.told(incoming.path) if self.batch is not None else {"version": "0"}
                return msgspec.json.encode(told), JSON
            case "/v1/models":
                return self._models(script), JSON
            case "/" if incoming.method == "HEAD":
                return b"", JSON
            case _:
                return None

    async def _ask(self, incoming: Incoming, script: Script, peer: Peer) -> bool:
        dialect = PATHS.get(incoming.path)
        if dialect is None or incoming.method != "POST":
            return error(peer, 404, "Not Found")
        came = clock.mono()
        self.counts.requests += 1
        if script is not self._played:  # faults that come to the first requests come again with a new script
            self._played, self._before = script, self.counts.requests - 1
        number = self.counts.requests
        request = read(incoming.body, dialect=dialect, number=number, turn=number - self._before)
        if request is None:
            return error(peer, 400, "the body is no JSON object", dialect)
        if self.note is not None:
            self.note(incoming, request)
        self.counts.prompt_tokens += request.prompt_tokens
        script = self._struck(request, script)
        if self.batch is not None:
            return await self._batched(request, script, peer, came)
        return await self._generate(self._in_slot(answer(request, script, self.engine), peer, came), peer)

    def _struck(self, request: Request, script: Script) -> Script:
        """Let those faults happen that hang on what is asked, or on how much is going on."""
        now = told(script, request.turn or request.number)
        if now.poison_schema and request.schema is not None and now.poison_schema in f"{request.schema}":
            die("EngineCore died: it could not compile the grammar of this schema (scripted)")
        if now.repeat_above_running is not None and self.running > now.repeat_above_running:
            return msgspec.structs.replace(script, text="the", tokens=script.tokens or _REPEATED)
        return script

    @property
    def running(self) -> int:
        """How many requests it works on."""
        return self.batch.clockwork.machine.running if self.batch is not None else self.counts.running

    async def _batched(self, request: Request, script: Script, peer: Peer, came: float) -> bool:
        """Let the batch say when tokens come; what computes nothing is answered at once."""
        composition = composed(request, script, self.engine)
        if self.batch is None or composition is None:
            return await self._generate(self._play(answer(request, script, self.engine), peer, Pace(came)), peer)
        turn = self.batch.submit(request, composition, came)
        if isinstance(turn, Refusal):
            return reply(peer, turn.status, refusal_body(request.dialect, turn))
        try:
            tell = partial(self._told, request, composition)
            pace = Pace(came, turn)
            return await self._generate(self._in_batch(script, peer, pace, tell, stream=request.stream), peer)
        finally:
            self.batch.clockwork.leave(turn)

    async def _in_batch(
        self, script: Script, peer: Peer, pace: Pace, tell: Callable[[Script], Iterable[Event]], *, stream: bool
    ) -> bool:
        turn = pace.turn
        if turn is None:
            return False
        before = 1 if stream else turn.job.request.output_tokens  # an answer in one piece has its head at its end
        await turn.tokens(before)  # only now is it known what was in the cache
        turn.taken -= before
        known = msgspec.structs.replace(script, cached_tokens=script.cached_tokens or turn.job.hit_tokens)
        pace.due = clock.mono()  # what the script adds comes on top of the batch
        return await self._play(tell(known), peer, pace)

    def _told(self, request: Request, composition: Composition, script: Script) -> Iterable[Event]:
        return answer(request, script, self.engine, composition)

    def _known(self, incoming: Incoming) -> bool:
        headers = incoming.headers
        given = headers.get("authorization", "").removeprefix("Bearer ") or headers.get("x-api-key", "")
        return not self.secret or hmac.compare_digest(given.encode(), self.secret.encode())

    async def _generate(self, answering: Coroutine[object, object, bool], peer: Peer) -> bool:
        """Answer; a client that goes ends that at once."""
        playing = asyncio.ensure_future(answering)
        watching = asyncio.ensure_future(until_gone(peer))
        try:
            await asyncio.wait((playing, watching), return_when=asyncio.FIRST_COMPLETED)
            if not playing.done():
                self.counts.finished["abort"] += 1
                return False
            return await playing
        finally:
            for task in (playing, watching):
                task.cancel()
            await asyncio.wait((playing, watching))

    async def _in_slot(self, events: Iterable[Event], peer: Peer, came: float) -> bool:
        self.counts.waiting += 1
        waits = self._free.locked()
        try:
            await self._free.acquire()
        finally:
            self.counts.waiting -= 1
        self.counts.running += 1
        try:
            return await self._play(events, peer, Pace(clock.mono() if waits else came))
        finally:
            self.counts.running -= 1
            self._free.release()

    async def _play(self, events: Iterable[Event], peer: Peer, pace: Pace) -> bool:
        chunked = False
        for event in events:
            match event:
                case Wait(seconds=seconds):
                    await pace.wait(seconds)
                case Head():
                    chunked = event.length is None
                    peer.writer.write(head(event))
                case Send():
                    await self._send(event, peer, pace, chunked=chunked)
                case End(reason=reason):
                    self.counts.finished[reason] += 1
                    self.told(pace)
                    peer.writer.write(b"0\r\n\r\n" if chunked else b"")
                    await peer.writer.drain()
                case Cut(reset=reset):
                    cut(peer, reset=reset)
                    return False
                case Crash():
                    die("EngineCore died (scripted crash)")
        return True

    async def _send(self, event: Send, peer: Peer, pace: Pace, *, chunked: bool) -> None:
        turn = pace.turn
        if event.tokens and turn is not None:
            if turn.taken + event.tokens > turn.granted:
                await turn.tokens(event.tokens)
            else:
                turn.taken += event.tokens
        self.counts.generated += event.tokens
        pace.sends(event.tokens)
        await write(peer, event.data, chunked=chunked)

    def _models(self, script: Script) -> bytes:
        name = script.model or self.engine.model
        line = {"id": name, "object": "model", "created": 0, "owned_by": "rehearse"}
        context = self.engine.context_tokens or (self.batch.rig.context_tokens if self.batch is not None else 0)
        if context:
            line["max_model_len"] = context
        return msgspec.json.encode({"object": "list", "data": [line]})

    def _metrics(self) -> str:
        """Write the page under vLLM's names, as its exporter would."""
        counts, batch = self.counts, self.batch
        if batch is not None:
            return pages.page(batch.clockwork, batch.rig, model=self.engine.model, finished=counts.finished)
        rows = [
            ("gauge", "num_requests_running", counts.running),
            ("gauge", "num_requests_waiting", counts.waiting),
            ("gauge", "kv_cache_usage_perc", counts.running / self.slots),
            ("counter", "num_preemptions_total", 0),
            ("counter", "prefix_cache_queries_total", counts.prompt_tokens),
            ("counter", "prefix_cache_hits_total", 0),
            ("counter", "prompt_tokens_total", counts.prompt_tokens),
            ("counter", "generation_tokens_total", counts.generated),
        ]
        label = f'{{engine="0",model_name="{self.engine.model}"}}'
        lines = [f"# TYPE vllm:{name} {kind}\nvllm:{name}{label} {float(value)}" for kind, name, value in rows]
        for reason, count in sorted(counts.finished.items()):
            by_reason = f'{{engine="0",finished_reason="{reason}",model_name="{self.engine.model}"}}'
            lines.append(f"vllm:request_success_total{by_reason} {float(count)}")
        return "\n".join(lines) + "\n"
