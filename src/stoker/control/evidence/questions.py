"""Put questions to engines, directly and through the gateway, and keep the newest answers.

Questions run in threads of their own, bounded in time: a hanging engine delays nobody's pass. An answer belongs to one
attempt; when the attempt is forgotten its answers go too.
"""

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

import msgspec

from stoker.base import clock
from stoker.base.errors import Driver
from stoker.base.json import Json, JsonObject
from stoker.decide.parsers import PROBES, Verdict, judge
from stoker.decide.replica import Check
from stoker.drivers.request import Call, Reply, fetch, post_json
from stoker.engines.base import Engine, InForce
from stoker.facts import probe

_PROMPT: Final[list[Json]] = [{"role": "user", "content": "Say one word."}]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The attempt that is asked: where it listens, how it is called, and how the gateways know it."""

    attempt: str
    engine: Engine
    port: int
    secret: str
    served_name: str
    strict_name: bool  # the platform chose the name, so another one is a fault
    endpoint: str
    gateway: str  # http://host:port of the public listener
    gateway_cert_file: str  # of a listener with TLS
    probe_key: bytes
    workers: int
    generate: float
    template: str = ""  # the model's chat template; empty: not known


@dataclass(slots=True)
class Questions:
    """Answers by attempt and question. Reading is free; asking returns at once."""

    wake: Callable[[], None]
    checks: dict[tuple[str, str], Check] = field(default_factory=dict)
    in_force: dict[str, InForce] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    _asking: set[tuple[str, str]] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(16, thread_name_prefix="ask"))

    def answer(self, attempt: str, question: str) -> Check | None:
        """Read the newest answer."""
        return self.checks.get((attempt, question))

    def ask(self, subject: Subject, question: str) -> None:
        """Start asking, unless this very question is being asked already."""
        key = (subject.attempt, question)
        if key in self._asking:
            return
        self._asking.add(key)
        task = asyncio.get_running_loop().create_task(self._run(subject, question))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def forget(self, attempt: str) -> None:
        """Drop all answers of an attempt."""
        for key in [k for k in self.checks if k[0] == attempt]:
            del self.checks[key]
        for answers in (self.in_force, self.verdicts, self.metrics):
            answers.pop(attempt, None)

    async def close(self) -> None:
        """Stop asking."""
        for task in list(self._tasks):
            task.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self, subject: Subject, question: str) -> None:
        loop = asyncio.get_running_loop()
        try:
            said = await loop.run_in_executor(self._threads, self._work(question), subject)
        except Driver as error:
            said = _bad("NoAnswer", str(error))
        finally:
            self._asking.discard((subject.attempt, question))
        before = self.checks.get((subject.attempt, question))
        since = 0.0 if said.ok else (before.failing_since if before and not before.ok else said.at)
        self.checks[subject.attempt, question] = msgspec.structs.replace(said, failing_since=since)
        if before is None or before.ok != said.ok or question != "health":
            self.wake()

    def _work(self, question: str) -> Callable[[Subject], Check]:
        return {
            "loaded": self._loaded,
            "generates": _generates,
            "routable": _routable,
            "health": self._health,
            "progress": _progress,
            "parsers": self._parsers,
        }[question]

    def _loaded(self, subject: Subject) -> Check:
        """The engine lists the model: that, and not an open port, means that its weights are in memory."""
        probes = subject.engine.probes
        if probes.health:
            health = _get(subject, probes.health, timeout=5)
            if health.status != 200:
                return _bad("Loading", f"its health says {health.status}")
        names: tuple[str, ...] = ()
        if probes.models:
            listed = _get(subject, probes.models, timeout=10)
            if listed.status != 200:
                return _bad("Loading", f"{probes.models} answers {listed.status}")
            names = _model_names(listed.object())
            if subject.strict_name and names and subject.served_name not in names:
                return _bad(
                    "WrongModel",
                    f"it lists {', '.join(names)}, not {subject.served_name}",
                    action="fix the served name in the command",
                )
        self.in_force[subject.attempt] = _in_force(subject)
        return _good(f"lists {', '.join(names)}" if names else "answers")

    def _health(self, subject: Subject) -> Check:
        path = subject.engine.probes.health or subject.engine.probes.models
        reply = _get(subject, path, timeout=5)
        if subject.engine.probes.metrics:
            # An engine in the middle of a long batch may keep its page waiting: that says nothing of its health.
            with contextlib.suppress(Driver):
                page = _get(subject, subject.engine.probes.metrics, timeout=5)
                if page.status == 200:
                    self.metrics[subject.attempt] = dict(subject.engine.metrics(page.body.decode(errors="replace")))
        return _good() if reply.status == 200 else _bad("Unhealthy", f"its health says {reply.status}")

    def _parsers(self, subject: Subject) -> Check:
        """Ask the four template questions; what they show is judged by a pure function."""
        answers: dict[str, JsonObject] = {}
        for name, body in PROBES.items():
            reply = _post(
                subject, "/v1/chat/completions", {**body, "model": subject.served_name}, timeout=subject.generate
            )
            answers[name] = {"status": reply.status, "body": reply.object() if reply.body[:1] == b"{" else {}}
        self.verdicts[subject.attempt] = judge(answers, flags=subject.engine.parser_flags(), template=subject.template)
        return _good()


def _generates(subject: Subject) -> Check:
    body: JsonObject = {"model": subject.served_name, "messages": list(_PROMPT), "max_tokens": 4, "temperature": 0}
    reply = _post(subject, "/v1/chat/completions", body, timeout=subject.generate)
    if reply.status == 404 or (reply.status == 400 and b"template" in reply.body):
        # A base model has no chat template, and an embedding engine no completions: try what is left.
        plain: JsonObject = {"model": subject.served_name, "prompt": "Hello", "max_tokens": 4, "temperature": 0}
        reply = _post(subject, "/v1/completions", plain, timeout=subject.generate)
    return _completion(reply)


def _progress(subject: Subject) -> Check:
    """Ask for a small completion. Any answer in time is progress; only silence is not."""
    try:
        _generates(subject)
    except Driver as error:
        return _bad("NoProgress", f"no answer to a small question: {error}")
    return _good()


def _routable(subject: Subject) -> Check:
    """Ask through every gateway worker: workers share one socket, so ask until each has answered."""
    seen: set[str] = set()
    for _ in range(20 * max(1, subject.workers)):
        header = probe.sign(
            subject.probe_key,
            endpoint=subject.endpoint,
            incarnation=subject.attempt,
            expires_at=clock.now() + 60 + subject.generate,
        )
        body: JsonObject = {"model": subject.served_name, "messages": list(_PROMPT), "max_tokens": 4, "temperature": 0}
        reply = fetch(
            Call(
                url=f"{subject.gateway}/v1/chat/completions",
                method="POST",
                headers={probe.HEADER: header, "content-type": "application/json"},
                body=msgspec.json.encode(body),
                timeout=subject.generate,
                trusted_cert_file=subject.gateway_cert_file,
            )
        )
        said = _completion(reply)
        if not said.ok:
            return _bad("NotRoutable", f"through the gateway: {said.message}")
        seen.add(reply.headers.get("x-stoker-worker", "0"))
        if len(seen) >= max(1, subject.workers):
            return _good(f"answered through {len(seen)} gateway worker(s)")
    return _bad("NotRoutable", f"only {len(seen)} of {subject.workers} gateway workers answered a probe")


def _completion(reply: Reply) -> Check:
    """A real completion has a choice with a finish reason."""
    if reply.status != 200:
        return _bad(
            "GenerationFailed",
            f"a completion was answered with {reply.status}: {reply.body[:200].decode(errors='replace')}",
        )
    choices = reply.object().get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(first, dict) or not first.get("finish_reason"):
        return _bad("GenerationFailed", "a completion came back without a finish reason")
    return _good(f"in {reply.seconds:.2f} s")


def _get(subject: Subject, path: str, *, timeout: float) -> Reply:
    return fetch(Call(url=f"http://127.0.0.1:{subject.port}{path}", headers=_auth(subject), timeout=timeout))


def _post(subject: Subject, path: str, body: JsonObject, *, timeout: float) -> Reply:
    return post_json(f"http://127.0.0.1:{subject.port}{path}", body, headers=_auth(subject), timeout=timeout)


def _auth(subject: Subject) -> dict[str, str]:
    return {"authorization": f"Bearer {subject.secret}"} if subject.secret else {}


def _model_names(page: JsonObject) -> tuple[str, ...]:
    data = page.get("data")
    return tuple(str(m.get("id")) for m in data if isinstance(m, dict)) if isinstance(data, list) else ()


def _in_force(subject: Subject) -> InForce:
    answers: dict[str, Json] = {}
    for path in subject.engine.probes.in_force:
        reply = _get(subject, path, timeout=10)
        if reply.status == 200:
            try:
                answers[path] = reply.json()
            except Driver:  # a metrics page: text is what its adapter reads there
                answers[path] = reply.body.decode(errors="replace")
    return subject.engine.in_force(answers)


def _good(message: str = "") -> Check:
    return Check(ok=True, at=clock.now(), message=message)


def _bad(reason: str, message: str, *, action: str = "") -> Check:
    return Check(ok=False, at=clock.now(), reason=reason, message=message, action=action)
