"""Resources: apply, diff, get, describe, delete, events, schema."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from stoker.base import clock
from stoker.base.errors import Fault, Invalid
from stoker.base.json import Json, JsonObject
from stoker.cli import output
from stoker.cli.client import Client
from stoker.cli.output import condition, err, items, text
from stoker.cli.settings import Settings

Output = Annotated[str, typer.Option("--output", "-o", help="wide, yaml or json.")]
Files = Annotated[list[str], typer.Option("--filename", "-f", help="A file, a folder, or - for standard input.")]


def add(app: typer.Typer) -> None:
    """Add the commands of this file."""
    for command in (apply, diff, get, describe, delete, events, schema):
        app.command()(command)


def client(context: typer.Context) -> Client:
    """Connect to the controller that the settings name."""
    settings: Settings = context.obj
    return Client(settings.layout, actor=settings.actor)


def apply(
    context: typer.Context,
    filename: Files,
    accept_licence: Annotated[list[str], typer.Option(help="Accept the licence of a model by its name.")] = [],  # noqa: B006
) -> None:
    """Create or change resources. Of a set in which one document is wrong nothing is applied."""
    accepted: list[Json] = list(accept_licence)
    _report(client(context).post("/v1/apply", {**_sources(context, filename), "acceptLicences": accepted}))


def diff(context: typer.Context, filename: Files) -> None:
    """Show what apply would change. Exit code 1 when something would."""
    answer = client(context).post("/v1/apply", {**_sources(context, filename), "dryRun": True})
    changed = False
    for item in items(answer, "results"):
        lines = item.get("diff")
        if isinstance(lines, list) and lines:
            changed = True
            print(f"--- {item['kind']}/{item['name']} ({item['change']})")
            print("\n".join(str(line) for line in lines))
    raise typer.Exit(1 if changed else 0)


def get(
    context: typer.Context,
    kind: Annotated[str, typer.Argument(help="A kind, its plural or its short name, such as md.")],
    name: Annotated[str, typer.Argument()] = "",
    *,
    form: Output = "",
    all_namespaces: Annotated[bool, typer.Option("--all-namespaces", "-A")] = False,
    selector: Annotated[str, typer.Option("--selector", "-l", help="Labels: a=b,c=d")] = "",
) -> None:
    """List resources, or print one."""
    if form not in ("", "wide", "yaml", "json"):
        raise Invalid(Fault(message=f"'{form}' is no output form", field="--output", hint="wide, yaml or json"))
    settings: Settings = context.obj
    space = "" if all_namespaces else settings.namespace
    api = client(context)
    if name:
        found = api.get(f"/v1/resources/{kind}/{settings.namespace}/{name}")
        listed = [found]
        answer: Json = found
    else:
        page = api.get(f"/v1/resources/{kind}", namespace=space, selector=selector)
        listed, answer = items(page, "items"), {**page, "kind": "List", "apiVersion": "v1"}
    if form in ("yaml", "json"):
        output.data(answer, form)
        return
    if not listed:
        err.print(f"no {kind} found" + ("" if all_namespaces else f" in namespace {settings.namespace}"))
        return
    _table(listed, wide=form == "wide", namespaced=all_namespaces)


def describe(context: typer.Context, kind: str, name: str) -> None:
    """Tell everything about one resource: spec, conditions with the next action, events."""
    settings: Settings = context.obj
    api = client(context)
    found = api.get(f"/v1/resources/{kind}/{settings.namespace}/{name}")
    output.data({k: v for k, v in found.items() if k != "status"}, "yaml")
    print("conditions:")
    fields = ("type", "status", "reason", "message", "nextAction")
    rows = [tuple(text(c, field) for field in fields) for c in items(found, "status", "conditions")]
    output.table(("  TYPE", "STATUS", "REASON", "MESSAGE", "NEXT ACTION"), [("  " + r[0], *r[1:]) for r in rows])
    status = found.get("status")
    rest: JsonObject = (
        {k: v for k, v in status.items() if k not in ("conditions", "memory")} if isinstance(status, dict) else {}
    )
    if rest:
        output.data({"status": rest}, "yaml")
    print("events:")
    _events(api.get("/v1/events", kind=text(found, "kind"), namespace=text(found, "metadata", "namespace"), name=name))


def delete(
    context: typer.Context,
    kind: Annotated[str, typer.Argument()] = "",
    name: Annotated[str, typer.Argument()] = "",
    *,
    filename: Annotated[
        list[str] | None, typer.Option("--filename", "-f", help="Delete what these files name.")
    ] = None,
    wait: Annotated[bool, typer.Option(help="Return only when it is gone.")] = True,
) -> None:
    """Delete a resource; replicas drain first."""
    settings: Settings = context.obj
    api = client(context)
    if filename:
        asked = items(api.post("/v1/apply", {**_sources(context, filename), "dryRun": True}), "results")
        names = [(text(r, "kind"), text(r, "namespace") or "-", text(r, "name")) for r in asked]
    elif kind and name:
        names = [(kind, settings.namespace, name)]
    else:
        raise Invalid(Fault(message="nothing is named", hint="stoker delete KIND NAME, or -f FILE"))
    for what, space, which in reversed(names):
        api.delete(f"/v1/resources/{what}/{space}/{which}")
        print(f"{what}/{which} deleted" if not wait else f"{what}/{which} is being deleted")
    if wait:
        _wait_gone(api, names)


def events(
    context: typer.Context,
    kind: Annotated[str, typer.Argument()] = "",
    name: Annotated[str, typer.Argument()] = "",
    *,
    limit: Annotated[int, typer.Option(help="How many, the newest.", min=1)] = 100,
) -> None:
    """Show what happened, oldest first."""
    _events(client(context).get("/v1/events", kind=kind, name=name, limit=limit))


def schema(kind: str) -> None:
    """Print the JSON Schema of a kind, for editors."""
    from stoker.spec import kinds

    output.data(kinds.schema(kind), "json")


def _sources(context: typer.Context, filename: list[str]) -> JsonObject:
    """Read every named file; raises Invalid for one that is not there."""
    settings: Settings = context.obj
    sources: list[Json] = []
    for name in filename:
        if name == "-":
            sources.append({"file": "<stdin>", "text": sys.stdin.read()})
            continue
        path = Path(name)
        found = (
            sorted(p for p in path.rglob("*") if p.suffix in (".yaml", ".yml", ".json")) if path.is_dir() else [path]
        )
        if not found:
            raise Invalid(Fault(message="the folder holds no .yaml, .yml or .json file", file=name))
        for file in found:
            try:
                sources.append({"file": str(file), "text": file.read_text()})
            except (OSError, UnicodeDecodeError) as error:
                raise Invalid(Fault(message=f"cannot be read: {error}", file=str(file))) from error
    return {"sources": sources, "namespace": settings.namespace}


def _report(answer: JsonObject) -> None:
    for item in items(answer, "results"):
        print(f"{text(item, 'kind').lower()}/{text(item, 'name')} {text(item, 'change')}")
        for note, label in (("ignored", "ignored"), ("deferred", "accepted, nothing acts on it yet")):
            for line in item.get(note) or []:  # type: ignore[union-attr]
                err.print(f"  {label}: {line}")
    for warning in answer.get("warnings") or []:  # type: ignore[union-attr]
        err.print(f"warning: {warning}")


def _table(listed: list[JsonObject], *, wide: bool, namespaced: bool) -> None:
    columns = ["NAME", "READY", "REASON", "AGE"]
    if wide:
        columns += ["KIND", "GENERATION", "LABELS"]
    rows = []
    for item in listed:
        ready = condition(item, "Ready") or condition(item, "RoutingReady") or condition(item, "Accepted")
        name = text(item, "metadata", "name")
        row = [f"{text(item, 'metadata', 'namespace')}/{name}" if namespaced else name]
        row += [
            text(ready, "status") or "-",
            text(ready, "reason"),
            output.age(output.get(item, "metadata", "createdAt")),
        ]
        if wide:
            labels = output.get(item, "metadata", "labels")
            row += [text(item, "kind"), text(item, "metadata", "generation")]
            row.append(",".join(f"{k}={v}" for k, v in labels.items()) if isinstance(labels, dict) else "")
        rows.append(row)
    output.table(columns, rows)


def _events(page: JsonObject) -> None:
    rows = []
    for e in items(page, "items"):
        where = f"{text(e, 'kind')}/{text(e, 'name')}"
        times = f"{text(e, 'count')}x" if text(e, "count") not in ("", "1") else ""
        level = "warning" if e.get("warning") else "normal"
        rows.append(
            (
                output.age(e.get("at")),
                level,
                text(e, "reason"),
                where,
                f"{times} {text(e, 'message')}".strip(),
                text(e, "actor"),
            )
        )
    output.table(("AGE", "TYPE", "REASON", "OBJECT", "MESSAGE", "ACTOR"), rows)


def _wait_gone(api: Client, names: list[tuple[str, str, str]]) -> None:
    from stoker.base.errors import NotFound

    for kind, space, name in names:
        until = clock.mono() + 180
        while clock.mono() < until:
            try:
                api.get(f"/v1/resources/{kind}/{space}/{name}")
            except NotFound:
                break
            clock.sleep(0.2)
        else:
            raise Invalid(f"{kind}/{name} is still there after 180 s: `stoker describe {kind} {name}` tells why")
