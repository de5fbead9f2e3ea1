"""The routable, drain and rollout handshake over several gateway workers, as a state machine in virtual time.

The real decisions (roll, replica, publish, acknowledge, route) run against a world in memory: engines that start, load
and stop when hypothesis says so, workers that read the routes late, die and come back, a controller that dies and
returns with only what it had stored. What must hold in every order of events:

* no request is sent to an endpoint whose engine has been stopped, by any worker, however late it reads its routes;
* an engine is stopped for a rollout only when all live workers have acknowledged the drain and nothing is in flight;
* a probe reaches exactly the replica that it names;
* with new-before-old a service that serves never has no serving endpoint;
* left alone, the world settles: the wanted number of the wanted spec serves, and nothing else is left.
"""

from dataclasses import dataclass, field
from typing import Final

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from stoker.decide.acknowledge import Gateways, acknowledged, load
from stoker.decide.conditions import yes
from stoker.decide.publish import Labelled, Offer, Selector, publish
from stoker.decide.replica import Ask, Check, Decision, Forget, Memory, Policy, Published, Seen, Start, Stop, reconcile
from stoker.decide.roll import Replica, Wanted, roll
from stoker.decide.route import route
from stoker.facts.live import EndpointLoad, Live
from stoker.facts.observed import ExitFile, Phase, RunFile, Running
from stoker.facts.routes import Endpoint, Routes, State

SHOWN: Final = {"shown": "yes"}
POLICY: Final = Policy(
    drain=1e9, startup=1e9, generate=1e9
)  # limits are tested elsewhere: here every drain must be clean
OFFER: Final = Offer(namespace="d", name="m", labels=SHOWN, selectors=(Selector(labels={"app": "m"}),))


@dataclass
class Engine:
    run: RunFile
    phase: Phase = Phase.RUNNING
    loads: bool = False


@dataclass
class Row:
    """One ModelReplica as the store keeps it."""

    name: str
    index: int
    hash: str
    memory: Memory = field(default_factory=Memory)
    retired: bool = False
    ready: bool = False


@dataclass
class Busy:
    """What decide/route looks at."""

    serving: bool
    running: int
    slots: int = 2
    ejected_until: float = 0.0


@dataclass
class Worker:
    name: str
    routes: Routes
    flight: list[tuple[str, str]] = field(default_factory=list)  # (endpoint, incarnation) of each request

    def live(self, now: float) -> Live:
        loads = {key: self.flight.count(key) for key in self.flight}
        told = tuple(EndpointLoad(name=n, incarnation=i, running=c) for (n, i), c in loads.items())
        return Live(worker=self.name, pid=1, at=now, routes_generation=self.routes.generation, endpoints=told)


class Handshake(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.wanted = Wanted(replicas=1, hash="v1", recreate=False)
        self.rows: dict[str, Row] = {}
        self.engines: dict[str, Engine] = {}
        self.routes = Routes(generation=1)
        self.since: dict[str, int] = {}
        self.workers = [Worker(f"w{i}", self.routes) for i in range(2)]
        self.answers: dict[tuple[str, str], Check] = {}
        self.decisions: dict[str, Decision] = {}
        self.served_once = False
        self.made = 0

    # What the world does.

    @rule(engine=st.integers(0, 5))
    def engine_loads(self, engine: int) -> None:
        living = [e for e in self.engines.values() if e.phase is Phase.RUNNING]
        if living:
            living[engine % len(living)].loads = True

    @rule()
    def engines_end(self) -> None:
        for e in self.engines.values():
            if e.phase is Phase.STOPPING:
                e.phase = Phase.EXITED

    @rule(which=st.integers(0, 1))
    def worker_reads_routes(self, which: int) -> None:
        self.workers[which].routes = self.routes

    @rule(which=st.integers(0, 1))
    def worker_is_killed_and_comes_back(self, which: int) -> None:
        # A worker loads the policy before it accepts: it never serves by an empty or an old table.
        self.workers[which] = Worker(f"w{which}-{self.made}", self.routes)
        self.made += 1

    @rule(which=st.integers(0, 1), draw=st.floats(0, 0.999))
    def request_comes(self, which: int, draw: float) -> None:
        worker = self.workers[which]
        table = {e.name: e for e in worker.routes.endpoints}
        busy = {
            n: Busy(serving=e.state is State.SERVE, running=worker.flight.count((n, e.incarnation)))
            for n, e in table.items()
        }
        targets = worker.routes.services[0].targets if worker.routes.services else ()
        choice = route(targets, busy, now=self.now, draw=draw)
        if choice.endpoint:
            chosen = table[choice.endpoint]
            engine = self.engines.get(chosen.incarnation)
            assert engine is not None, "a request went to an engine that does not exist"
            assert engine.phase is Phase.RUNNING, "a request went to an engine that was told to stop"
            worker.flight.append((chosen.name, chosen.incarnation))

    @rule(which=st.integers(0, 1))
    def request_ends(self, which: int) -> None:
        if self.workers[which].flight:
            self.workers[which].flight.pop(0)

    # What the owner does.

    @rule(count=st.integers(1, 2))
    def owner_scales(self, count: int) -> None:
        self.wanted = Wanted(replicas=count, hash=self.wanted.hash, recreate=False)
        self.served_once = False

    @rule(template=st.sampled_from(["v1", "v2", "v3"]))
    def owner_changes_the_spec(self, template: str) -> None:
        self.wanted = Wanted(replicas=self.wanted.replicas, hash=template, recreate=False)

    # What the controller does.

    @rule()
    def controller_is_killed_and_comes_back(self) -> None:
        self.answers.clear()
        self.decisions.clear()
        self.since = {e.name: self.routes.generation for e in self.routes.endpoints}

    @rule()
    def controller_makes_a_pass(self) -> None:
        self.now += 1
        gateways = Gateways(workers=tuple(w.live(self.now) for w in self.workers), expected=len(self.workers))
        for row in self.rows.values():
            seen = self._see(row, gateways)
            self.decisions[row.name] = reconcile(
                seen, retired=row.retired, memory=row.memory, policy=POLICY, now=self.now
            )
        self._publish()
        for row in list(self.rows.values()):
            self._carry_out(row, self.decisions[row.name])
        self._roll(gateways)

    def _see(self, row: Row, gateways: Gateways) -> Seen:
        attempts = [e for e in self.engines.values() if e.run.uid == row.name]
        current = next((e for e in attempts if e.run.attempt == row.memory.attempt and row.memory.started_at), None)
        incarnation = f"{row.name}-{row.memory.attempt}"
        busy = load(gateways, row.name, incarnation, now=self.now)
        return Seen(
            accepted=yes("Accepted", "SpecValid"),
            files=Check(ok=True, at=self.now),
            preflight=Check(ok=True, at=self.now),
            devices=("cpu",),
            spec_hash=row.hash,
            running=_running(current) if current else None,
            leftovers=tuple(_running(e) for e in attempts if e is not current),
            loaded=self.answers.get((incarnation, "loaded")),
            generates=self.answers.get((incarnation, "generates")),
            routable=self.answers.get((incarnation, "routable")),
            health=Check(ok=True, at=self.now),
            published=self._published(row.name, incarnation, gateways),
            in_flight=None if busy is None else busy.running + busy.waiting,
        )

    def _published(self, name: str, incarnation: str, gateways: Gateways) -> Published | None:
        for e in self.routes.endpoints:
            if (e.name, e.incarnation) == (name, incarnation):
                return Published(state=e.state, acknowledged=acknowledged(gateways, self.since[name], now=self.now))
        return None

    def _publish(self) -> None:
        made = []
        for row in self.rows.values():
            state = self.decisions[row.name].route
            if state is not None:
                e = Endpoint(
                    name=row.name,
                    incarnation=f"{row.name}-{row.memory.attempt}",
                    state=state,
                    origin="http://127.0.0.1:1",
                )
                made.append(Labelled(endpoint=e, namespace="d", labels={"app": "m"}))
        tables = publish([OFFER], made, exposed=[SHOWN])
        new = Routes(generation=self.routes.generation, services=tables.services, endpoints=tables.endpoints)
        if new == self.routes:
            return
        before = {e.name: (e.incarnation, e.state) for e in self.routes.endpoints}
        self.routes = msgspec.structs.replace(new, generation=new.generation + 1)
        for e in self.routes.endpoints:
            if before.get(e.name) != (e.incarnation, e.state):
                self.since[e.name] = self.routes.generation

    def _carry_out(self, row: Row, decision: Decision) -> None:
        row.memory = decision.memory
        row.ready = any(c.type == "Ready" and c.status == "True" for c in decision.conditions)
        for action in decision.actions:
            match action:
                case Start(attempt=attempt):
                    run = RunFile(
                        name=f"{row.name}-{attempt}",
                        uid=row.name,
                        attempt=attempt,
                        boot_id="b",
                        shim_pid=1,
                        shim_start_ticks=1,
                        spec_hash=row.hash,
                        port=1,
                    )
                    self.engines[run.name] = Engine(run)
                case Stop(name=name):
                    flights = [f for w in self.workers for f in w.flight if f[1] == name]
                    assert not flights, "an engine was stopped under a running request"
                    for w in self.workers:
                        served = [e for e in w.routes.endpoints if e.incarnation == name and e.state is State.SERVE]
                        assert not served, "an engine was stopped that a live worker still serves"
                    self.engines[name].phase = Phase.STOPPING
                case Forget(name=name):
                    self.engines.pop(name, None)
                case Ask(question=question):
                    self._answer(row, question)
        if decision.gone:
            del self.rows[row.name]

    def _answer(self, row: Row, question: str) -> None:
        incarnation = f"{row.name}-{row.memory.attempt}"
        engine = self.engines[incarnation]
        if question == "routable":
            for w in self.workers:
                found = [e for e in w.routes.endpoints if e.name == row.name]
                assert [e.incarnation for e in found] == [incarnation], "a probe would reach another replica"
        self.answers[incarnation, question] = Check(ok=engine.loads, at=self.now, reason="Loading")

    def _roll(self, gateways: Gateways) -> None:
        views = [
            Replica(
                name=r.name,
                index=r.index,
                hash=r.hash,
                retired=r.retired,
                serving=r.ready
                and (p := self._published(r.name, f"{r.name}-{r.memory.attempt}", gateways)) is not None
                and p.state is State.SERVE
                and p.acknowledged,
                offered=self.decisions[r.name].route is State.SERVE,
            )
            for r in self.rows.values()
        ]
        decision = roll(self.wanted, views, since=0.0, now=self.now)
        for create in decision.create:
            self.made += 1
            row = Row(f"r{self.made}", create.index, self.wanted.hash)
            self.rows[row.name] = row
        for retire in decision.retire:
            self.rows[retire.name].retired = True

    # What must always hold.

    @invariant()
    def a_service_that_serves_never_has_none(self) -> None:
        serving = [e for e in self.routes.endpoints if e.state is State.SERVE]
        self.served_once = self.served_once or bool(serving)
        assert serving or not self.served_once

    @precondition(lambda self: self.made % 3 == 0)
    @rule()
    def left_alone_it_settles(self) -> None:
        for _ in range(60):
            for w in self.workers:
                w.routes = self.routes
                w.flight.clear()
            for e in self.engines.values():
                e.loads = True
            self.engines_end()
            self.controller_makes_a_pass()
        serving = [r for r in self.rows.values() if r.ready]
        assert [r.hash for r in serving] == [self.wanted.hash] * self.wanted.replicas
        assert len(self.rows) == self.wanted.replicas
        assert len(self.engines) == self.wanted.replicas


def _running(engine: Engine) -> Running:
    ended = ExitFile(name=engine.run.name, at=0.0, code=0) if engine.phase is Phase.EXITED else None
    return Running(run=engine.run, phase=engine.phase, exit=ended)


TestHandshake = Handshake.TestCase
TestHandshake.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
