"""How do gateways of several machines keep one set of limits? In Redis or Valkey, by one script a batch.

1. One connection; whatever comes while a batch is under way goes into the next one. A request waits for the store no
   longer than the time that the manifest gives it, and not at all while the store is away.
2. A reservation takes from all scopes or from none, inside one script, so limits are exact but for what runs now.
3. Requests under way are counted by worker, and a worker's counts hold as long as it is heard of. The store forgets
   the counts of one that was killed, and asks one that was only silent to say again what it has.
4. When the store does not answer, whoever waits for it is told so and decides alone. When it answers again, each worker
   says first what it has under way and what its machine has used today: whatever the store forgot is known again.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoScriptError, RedisError

from stoker.base.errors import Driver
from stoker.decide.quota.level import Demand, Level, Refusal, Verdict, left, longest, refuse
from stoker.facts.routes import SharedLimits

LEASE_SECONDS: Final = 6.0
_BATCH: Final = 256  # operations of one script: it holds the store for less than 10 ms
_CONNECT_SECONDS: Final = 2.0
_AGAIN_SECONDS: Final = (0.2, 2.0)  # between tries: at first, and at most
_RESERVE, _SETTLE, _HOLD = 0, 1, 2
_SCRIPT: Final = resources.files("stoker.drivers.limits").joinpath("script.lua").read_text()

_Scope = tuple[str, int, int, int, int] | tuple[str, int, int, int, int, int, float, float, int]
_Done = Callable[[Verdict | None], None]


class _Operation(msgspec.Struct, array_like=True):
    kind: int
    scopes: tuple[_Scope, ...]
    reserved: int = 0
    used: int = 0
    request: int = 1


class _Batch(msgspec.Struct, array_like=True):
    worker: str
    machine: str
    lease: float
    now: float
    operations: list[_Operation]


class _Seen(msgspec.Struct, array_like=True, frozen=True):
    """One scope as the store has it: after a grant, or as it was at a refusal."""

    requests: float
    tokens: float
    spent: float
    running: float


class _Reserved(msgspec.Struct, array_like=True, frozen=True):
    granted: int
    scopes: list[_Seen]


class _Reply(msgspec.Struct, array_like=True, frozen=True):
    known: int  # whether the store knew this worker to be alive
    now: float
    answers: list[_Reserved | int]


class _Waiting(msgspec.Struct):
    """An operation on its way, and who waits for its answer."""

    kind: int
    demands: Sequence[Demand]
    reserved: int
    used: int = 0
    request: bool = True
    done: _Done | None = None


class Store:
    """The store as one worker uses it. ``recall`` tells what this machine knows of a scope by itself."""

    def __init__(
        self, rules: SharedLimits, folder: Path, *, worker: str, machine: str, recall: Callable[[Demand], Level]
    ) -> None:
        self.rules = rules
        self._folder = folder
        self._worker = worker
        self._machine = machine
        self._recall = recall
        self._prefix = f"{{{rules.prefix}}}"  # in braces: a cluster keeps all of it in one place
        self._client: Redis | None = None
        self._sha = ""
        self._queue: deque[_Waiting] = deque()
        self._came = asyncio.Event()
        self._held: dict[str, tuple[Demand, int]] = {}  # requests under way that the store was told of
        self._told: set[str] = set()  # scopes of which the store knows what we know
        self._stopping = False
        self.lease = LEASE_SECONDS
        self.now = 0.0  # tests set the clock
        self.up = False
        self.problem = "the store of shared limits has not answered yet"

    # What a request asks.

    def reserve(self, demands: Sequence[Demand], tokens: int, done: _Done) -> None:
        """Ask for a request and its estimate. ``done`` gets the verdict, or None where the store does not answer."""
        self._queue.append(_Waiting(_RESERVE, demands, tokens, done=done))
        self._came.set()

    def settle(self, demands: Sequence[Demand], *, reserved: int, used: int, request: bool) -> None:
        """End a request that the store had let in."""
        if self.up:
            self._queue.append(_Waiting(_SETTLE, demands, reserved, used, request))
            self._came.set()
        else:
            self._hold(demands, -1)  # said when the store is back

    def _hold(self, demands: Sequence[Demand], more: int) -> None:
        for demand in demands:
            count = self._held.get(demand.name, (demand, 0))[1] + more
            if count > 0:
                self._held[demand.name] = (demand, count)
            else:
                self._held.pop(demand.name, None)

    def hold(self, demands: Sequence[Demand]) -> None:
        """Note a request that this machine has let in by itself; the store hears of it when it is back."""
        self._hold(demands, 1)

    # The connection.

    async def run(self) -> None:
        """Serve until told to leave; whatever breaks is said and tried again."""
        wait, most = _AGAIN_SECONDS
        while not self._stopping:
            try:
                await self._connect()
                wait = _AGAIN_SECONDS[0]
                await self._serve()
            except (RedisError, OSError, TimeoutError, Driver) as error:
                await self._lose(_words(error))
                await asyncio.sleep(wait)
                wait = min(most, wait * 2)
        await self._lose("the gateway has left the store of shared limits")

    def leave(self) -> None:
        """Say what is still to be said, and end."""
        self._stopping = True
        self._came.set()

    async def _connect(self) -> None:
        client = self._client = self._open()
        async with asyncio.timeout(_CONNECT_SECONDS):
            self._sha = str(await client.script_load(_SCRIPT))
        self._told.clear()
        await self._say_what_is_held()
        self.up, self.problem = True, ""

    def _open(self) -> Redis:
        rules, name, password = self.rules, None, None
        if rules.credential_file:
            try:
                text = (self._folder / rules.credential_file).read_text().strip()
            except OSError as error:
                raise Driver(f"its credential cannot be read: {error.strerror}") from error
            name, _, password = text.rpartition(":")
        url = rules.url
        if rules.ca_file:
            url += f"{'&' if '?' in url else '?'}ssl_ca_certs={quote(str(self._folder / rules.ca_file))}"
        return Redis.from_url(
            url,
            username=name or None,
            password=password or None,
            single_connection_client=True,
            retry=Retry(NoBackoff(), 0),  # a repeated reservation would count twice
            socket_connect_timeout=_CONNECT_SECONDS,
        )

    async def _serve(self) -> None:
        """Send what comes, and a sign of life where nothing does."""
        while self._queue or not self._stopping:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.lease / 3):
                    await self._came.wait()
            await self._send()

    async def _send(self) -> None:
        waiting = [self._queue.popleft() for _ in range(min(_BATCH, len(self._queue)))]
        if not self._queue:
            self._came.clear()
        try:
            reply = await self._call([self._operation(each) for each in waiting])
        except BaseException:
            self._queue.extendleft(reversed(waiting))  # whoever waits for them is told by `_lose`
            raise
        for each, answer in zip(waiting, reply.answers, strict=True):
            self._answer(each, answer, reply.now)
        if not reply.known:
            await self._say_what_is_held()  # we were silent for longer than our lease, or the store was emptied

    async def _say_what_is_held(self) -> None:
        """Say what we know. The machine has settled already what still waits to be settled here."""
        self._told.clear()
        for each in self._queue:
            if each.kind == _SETTLE:
                each.reserved, each.request = each.used, True
        scopes = tuple(self._scope(demand) for demand, _ in self._held.values())
        await self._call([_Operation(_HOLD, scopes)] if scopes else [])

    async def _call(self, operations: list[_Operation]) -> _Reply:
        client = self._client
        if client is None:
            raise Driver("the store is not connected")
        batch = msgspec.msgpack.encode(_Batch(self._worker, self._machine, self.lease, self.now, operations))
        async with asyncio.timeout(self.rules.timeout):
            try:
                raw = await client.evalsha(self._sha, 1, self._prefix, batch)
            except NoScriptError:  # it was told to forget its scripts
                raw = await client.eval(_SCRIPT, 1, self._prefix, batch)
        try:
            return msgspec.msgpack.decode(raw, type=_Reply)
        except msgspec.DecodeError as error:
            raise Driver(f"it answers in an unknown shape: {error}") from error

    def _operation(self, each: _Waiting) -> _Operation:
        scopes = tuple(self._scope(demand) for demand in each.demands)
        return _Operation(each.kind, scopes, each.reserved, each.used, int(each.request))

    def _scope(self, demand: Demand) -> _Scope:
        limits = demand.limits
        known = (
            demand.name,
            limits.requests_per_minute,
            limits.tokens_per_minute,
            limits.tokens_per_day,
            limits.concurrent,
        )
        if demand.name in self._told:
            return known
        self._told.add(demand.name)
        level = self._recall(demand)
        return (*known, level.spent, level.requests, level.tokens, self._held.get(demand.name, (demand, 0))[1])

    def _answer(self, each: _Waiting, answer: _Reserved | int, now: float) -> None:
        if each.kind == _SETTLE:
            self._hold(each.demands, -1)
        elif isinstance(answer, _Reserved) and each.done is not None:
            if answer.granted:
                self._hold(each.demands, 1)
            each.done(_verdict(each, answer, now))

    async def _lose(self, problem: str) -> None:
        """Let everybody who waits decide alone."""
        self.up, self.problem = False, problem
        waiting, self._queue = self._queue, deque()
        self._came.clear()
        for each in waiting:
            if each.done is not None:
                each.done(None)
            else:
                self._hold(each.demands, -1)
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(RedisError, OSError, TimeoutError):
                await client.aclose()


def _verdict(each: _Waiting, answer: _Reserved, now: float) -> Verdict:
    levels = [Level(seen.requests, seen.tokens, now, 0, int(seen.spent)) for seen in answer.scopes]
    standing = left(each.demands, levels, now)
    if answer.granted:
        return Verdict(None, standing)
    seen = zip(each.demands, levels, answer.scopes, strict=True)
    refusals = [
        refusal
        for demand, level, scope in seen
        if (refusal := refuse(demand, level, tokens=each.reserved, running=int(scope.running), now=now)) is not None
    ]
    return Verdict(longest(refusals) or _unnamed(each.demands[0]), standing)


def _unnamed(demand: Demand) -> Refusal:
    return Refusal(limit="shared", allowed=0, whose=demand.whose, retry_after=1.0)


def _words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "the store of shared limits does not answer in time"
    if isinstance(error, AuthenticationError) or "authenticat" in str(error):
        return "the store of shared limits wants a password, or another one: see credentialFile"
    return f"the store of shared limits: {str(error) or type(error).__name__}"
