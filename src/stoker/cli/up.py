"""Start and stop Stoker on this machine: the one command that does everything, and its opposite."""

import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from stoker.base import clock
from stoker.base.errors import Driver, NotFound
from stoker.base.json import Json, JsonObject
from stoker.cli import preflight, waiting
from stoker.cli.client import Client
from stoker.cli.output import err, items, text
from stoker.cli.settings import Settings, hub_token
from stoker.drivers import files, spawn

_EXPOSED: dict[str, Json] = {"stoker.dev/exposed": "true"}


def add(app: typer.Typer) -> None:
    """Add the commands of this file."""
    app.command()(up)
    app.command()(down)


def up(
    context: typer.Context,
    model: Annotated[
        str,
        typer.Option("--model", "-m", help="A .gguf file, a folder, HF_REPO[@COMMIT], or a name of `stoker models`."),
    ] = "",
    *,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return when it is ready and leave it running.")
    ] = False,
    listen: Annotated[str, typer.Option(help="Where the gateway listens.")] = "127.0.0.1:8080",
    admin: Annotated[str, typer.Option(help="Where its metrics are (loopback).")] = "127.0.0.1:8081",
    workers: Annotated[int, typer.Option(help="Gateway processes.", min=1, max=16)] = 1,
    unmetered: Annotated[bool, typer.Option(help="Serve even when no usage record can be written.")] = False,
    accept_licence: Annotated[bool, typer.Option(help="Accept the licence of the model that --model names.")] = False,
    tls_cert: Annotated[Path | None, typer.Option(help="Certificate chain (PEM); read again when it changes.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="Its key (PEM).")] = None,
    insecure: Annotated[bool, typer.Option(help="Allow to listen beyond loopback without TLS.")] = False,
    bare: Annotated[bool, typer.Option(help="Start no model and wait for none: `stoker apply` brings yours.")] = False,
    wait: Annotated[float, typer.Option(help="Seconds to wait until the model answers.")] = 900.0,
) -> None:
    """Start the gateway, the controller, an engine and a model, and print how to use them."""
    settings: Settings = context.obj
    if not detach:
        _mind_signals()
    preflight.place(settings.layout)
    tls = preflight.certificate(tls_cert, tls_key)
    preflight.address(listen, insecure=insecure or bool(tls))
    preflight.address(admin, insecure=False, field="--admin")
    manifests = preflight.manifests(model, exposed=_EXPOSED, accept=accept_licence, port=int(listen.rpartition(":")[2]))
    for line in preflight.machine(settings.layout.root):
        err.print(f"[yellow]note:[/yellow] {line}")
    words = ["--state-dir", str(settings.layout.root), "--listen", listen, "--admin", admin, "--workers", str(workers)]
    words += (["--unmetered"] if unmetered else []) + tls + (["--insecure-bind"] if insecure else [])
    words += ["--hub-endpoint", settings.hub_endpoint] if settings.hub_endpoint else []
    started = _ensure_running(settings, words)
    fixed = [name for name in ("listen", "admin", "workers", "unmetered", "tls_cert") if _given(context, name)]
    if fixed and not started:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in fixed)
        err.print(f"[yellow]warning:[/yellow] {names}: counts only at a start, so nothing changed: `stoker down` first")
    api = Client(settings.layout, actor=settings.actor)
    try:
        wanted = _wanted(api, manifests, model=model, bare=bare)
        print(_bring_up(api, wanted, wait=0.0 if bare and not model else wait), flush=True)  # also into a pipe
        if started and not detach:
            _stay(settings)
    except BaseException:
        if started and not detach:  # what nobody sees must not stay behind; with -d it is meant to
            _stop(settings, keep_engines=False)
        raise


def down(
    context: typer.Context,
    *,
    keep_engines: Annotated[
        bool, typer.Option(help="Leave engines running; the next `stoker up` adopts them.")
    ] = False,
) -> None:
    """Drain and stop everything that `stoker up` started. The state stays."""
    settings: Settings = context.obj
    running = spawn.find(settings.layout)
    if running is None or not running.alive:
        _stop_leftovers(settings, keep_engines=keep_engines)
        return
    _stop(settings, keep_engines=keep_engines)
    print("stopped" + ("; engines go on" if keep_engines else ""))


def _stop_leftovers(settings: Settings, *, keep_engines: bool) -> None:
    """End the engines of a supervisor that was killed. Raises NotFound when there are none, Driver when one stays."""
    from stoker.drivers.hosts import leftovers

    ended, left = (0, []) if keep_engines else leftovers.stop_all(settings.layout.root)
    if left:
        raise Driver(f"{len(left)} engines do not end: {', '.join(left)}; see {settings.layout.logs}")
    if not ended:
        raise NotFound(f"no Stoker runs with the state directory {settings.layout.root}")
    print(f"no supervisor ran here any more; stopped the {ended} engine(s) that it had left")


def _ensure_running(settings: Settings, arguments: list[str]) -> bool:
    """Start the supervisor unless it runs; tells whether this call did."""
    running = spawn.find(settings.layout)
    if running is not None and running.alive and _settled(settings):
        err.print(f"Stoker runs already (pid {running.pid}); applying to it, `stoker down` stops it")
        return False
    settings.layout.make()
    if token := hub_token():
        files.replace(settings.layout.hub_token, token.encode())
    log = settings.layout.logs / "supervisor.log"
    before = log.stat().st_size if log.exists() else 0
    pid = spawn.start("stoker.control.supervisor", arguments, log=log)
    try:
        return _started(settings, pid, since=before)
    except BaseException:
        _end(spawn.Background(pid=pid, alive=True), keep_engines=False)  # ours, never one that somebody else started
        raise


def _settled(settings: Settings) -> bool:
    """Wait while the one that is there starts or stops; True: it runs, False: it has ended. Raises Driver."""
    api = Client(settings.layout)
    until = clock.mono() + 180
    with err.status("waiting for the Stoker that starts or stops here"):
        while (running := spawn.find(settings.layout)) is not None and running.alive:
            if not running.stopping and api.is_up():
                return True
            if clock.mono() > until:
                raise Driver(f"the Stoker that is there (pid {running.pid}) neither answers nor ends; see its logs")
            clock.sleep(0.1)
    return False


def _started(settings: Settings, pid: int, *, since: int) -> bool:
    """Wait until our supervisor's controller answers; False: somebody else's was faster and runs. Raises Driver."""
    api, log = Client(settings.layout), settings.layout.logs / "supervisor.log"
    until = clock.mono() + 60
    with err.status("starting controller and gateway"):
        while True:
            running = spawn.find(settings.layout)
            if running is not None and running.pid == pid and api.is_up():
                return True
            code = spawn.ended(pid)
            if code is not None:
                if running is not None and running.alive and running.pid != pid and _settled(settings):
                    return False
                raise Driver(f"the supervisor ended with {code}: {_tail(log, since)}")
            if clock.mono() > until:
                raise Driver(f"the controller did not answer within 60 s; its log is in {settings.layout.logs}")
            clock.sleep(0.05)


def _bring_up(api: Client, manifests: JsonObject | None, *, wait: float) -> str:
    """Apply what is to run, wait for it, and write how to use it."""
    if manifests is not None:
        answer = api.post("/v1/apply", manifests)
        for warning in answer.get("warnings") or []:  # type: ignore[union-attr]
            err.print(f"[yellow]warning:[/yellow] {warning}")
    if wait:
        _watch(api, asked=_asked(manifests), until=clock.mono() + wait)
    key, note = _key(api)
    status = api.get("/v1/status")
    for warning in status.get("warnings") or []:  # type: ignore[union-attr]
        err.print(f"[yellow]warning:[/yellow] {warning}")
    return preflight.banner(status, key=key, note=note, python=sys.executable)


def _wanted(api: Client, manifests: JsonObject, *, model: str, bare: bool) -> JsonObject | None:
    """Choose what is still to be written: never over a gateway or use case, whose owner may have changed them."""
    cases = items(api.get("/v1/resources/UseCase", namespace="default"), "items")
    there = {"UseCase"} if any(text(case, "metadata", "name") == "chat" for case in cases) else set()
    if items(api.get("/v1/resources/InferenceGateway"), "items"):
        there.add("InferenceGateway")
    if model or not (bare or _deployments(api)):
        return preflight.without(manifests, there)
    if bare or "InferenceGateway" in there:
        return None
    return {**preflight.without(manifests, {"UseCase", "ModelDeployment", "ModelService"}), "deployment": ""}


def _asked(manifests: JsonObject | None) -> str:
    """Name the deployment that these manifests bring; empty when none were applied."""
    return str(manifests["deployment"]) if manifests else ""


def _deployments(api: Client) -> list[JsonObject]:
    return items(api.get("/v1/resources/ModelDeployment"), "items")


def _key(api: Client) -> tuple[str, str]:
    """Make the first key, or say that there is one already."""
    keys = [k for k in items(api.get("/v1/keys"), "items") if k.get("state") == "valid" and k.get("caller") == "me"]
    if keys:
        return (
            "",
            f"key {text(keys[-1], 'id')} of caller 'me' was shown once; `stoker key create me` makes another",
        )
    made = api.post("/v1/keys", {"caller": "me", "namespace": "default", "lifeSeconds": 0, "wait": True})
    return text(made, "key"), "shown only now: keep it"


def _watch(api: Client, *, asked: str, until: float) -> None:
    """Show the ladders until nothing is still coming. Raises Driver when what was asked for does not come up."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[what]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=err, transient=True) as progress:
        tasks: dict[str, TaskID] = {}
        while True:
            replicas = items(api.get("/v1/resources/ModelReplica"), "items")
            now = waiting.state(_deployments(api), replicas, asked=asked)
            for rung in waiting.rungs(replicas):
                if rung.name not in tasks:
                    tasks[rung.name] = progress.add_task(rung.name, total=len(waiting.LADDER), what="")
                progress.update(tasks[rung.name], completed=rung.done, what=rung.what[:80])
            if not now.coming or clock.mono() > until:
                break
            clock.sleep(0.1)
    _conclude(now)


def _conclude(now: waiting.State) -> None:
    """Say what is stuck; that is an error unless something else serves. Raises Driver."""
    troubles = [f"{name}: {why}" for name, why in now.stuck.items()]
    troubles += [f"{name} is not ready yet; `stoker status` tells more" for name in now.coming]
    if troubles and not now.ready:
        raise Driver("\n".join(troubles))
    for trouble in troubles:
        err.print(f"[yellow]warning:[/yellow] {trouble}")


def _mind_signals() -> None:
    """Take a closed terminal or a `kill` of this process as Ctrl-C, from the first moment: nothing stays unseen."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)


def _given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _stay(settings: Settings) -> None:
    """Wait for Ctrl-C, then drain and stop; or for the supervisor to end by itself."""
    err.print("Ctrl-C drains and stops everything; `stoker up -d` leaves it running")
    terminal = sys.stdin.isatty()

    try:
        while (running := spawn.find(settings.layout)) is not None and running.alive:
            spawn.ended(running.pid)
            clock.sleep(0.5)
            if terminal and not sys.stdin.isatty():  # under make as a session's leader no SIGHUP comes this far
                raise KeyboardInterrupt  # noqa: TRY301 - it is one
    except KeyboardInterrupt:
        _stop(settings, keep_engines=False)
        return
    raise Driver(f"the supervisor has ended; see {settings.layout.logs / 'supervisor.log'}")


def _stop(settings: Settings, *, keep_engines: bool) -> None:
    running = spawn.find(settings.layout)
    if running is not None and running.alive:
        _end(running, keep_engines=keep_engines)


def _end(running: spawn.Background, *, keep_engines: bool) -> None:
    with err.status("draining and stopping"):
        spawn.stop(running, keep_engines=keep_engines, timeout=150)


def _tail(log: Path, since: int) -> str:
    """Read the last lines that were written after ``since`` bytes: older ones tell of another start."""
    lines = log.read_bytes()[since:].decode(errors="replace").splitlines() if log.exists() else []
    return "\n".join(lines[-12:]) or "it wrote no log"
