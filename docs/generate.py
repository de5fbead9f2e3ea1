"""Write the reference pages from the code: ``python docs/generate.py`` (or ``make docs``). A test keeps them fresh."""

import ast
from pathlib import Path

import msgspec
import typer

from stoker.bench import result as results
from stoker.cli.main import build
from stoker.spec import handbook

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src/stoker").rglob("*.py"))
REFERENCE = ROOT / "docs/reference"


def commands() -> str:
    """Every command with its arguments and options, as the command line itself describes them."""
    group = typer.main.get_command(build())
    lines = ["# Commands", "", "Made from the program: `make docs`.", ""]
    for name, command in sorted(_commands(group).items()):
        lines += [f"## stoker {name}", "", (command.help or "").strip(), ""]
        rows = [_row(parameter) for parameter in command.params if parameter.name != "help"]
        if rows:
            lines += ["| parameter | meaning | default |", "|---|---|---|", *rows, ""]
    return "\n".join(lines)


def _commands(group: object, prefix: str = "") -> dict[str, object]:
    found = {}
    for name, command in getattr(group, "commands", {}).items():
        inner = getattr(command, "commands", None)
        found |= _commands(command, f"{prefix}{name} ") if inner else {f"{prefix}{name}": command}
    return found


def _row(parameter: object) -> str:
    names = (
        ", ".join(f"`{o}`" for o in parameter.opts) if parameter.param_type_name == "option" else f"`{parameter.name}`"
    )
    default = "" if parameter.default in (None, "", (), [], False) else str(parameter.default)
    meaning = (getattr(parameter, "help", "") or "").replace("|", r"\|")
    return f"| {names} | {meaning} | {default} |"


def conditions() -> str:
    """Every condition and reason that the code can write, with its next action where it is a fixed text."""
    found: dict[tuple[str, str], str] = {}
    for source in SOURCES:
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Call):
                _note(node, found)
    lines = ["# Conditions and reasons", "", "Made from the code: `make docs`. Scripts may match on these words.", ""]
    lines += ["| condition | reason | next action |", "|---|---|---|"]
    return "\n".join(
        [*lines, *(f"| {kind} | {reason} | {action} |" for (kind, reason), action in sorted(found.items())), ""]
    )


def _note(node: ast.Call, found: dict[tuple[str, str], str]) -> None:
    called = getattr(node.func, "id", getattr(node.func, "attr", ""))
    words = [a.value if isinstance(a, ast.Constant) and isinstance(a.value, str) else None for a in node.args]
    named = {
        k.arg: k.value.value
        for k in node.keywords
        if isinstance(k.value, ast.Constant) and isinstance(k.value.value, str)
    }
    if called in ("yes", "no", "unknown") and len(words) >= 2 and words[0] and words[1]:
        key = (words[0], words[1])
    elif called in ("Trouble", "Verdict", "Check") and named.get("reason"):
        key = ({"Trouble": "Started", "Verdict": "Preflighted"}.get(called, "any"), named["reason"])
    elif called in ("_no", "_bad") and words and words[0]:
        key = ("CacheReady" if called == "_no" else "Loaded, Generates, Routable", words[0])
    else:
        return
    found.setdefault(key, named.get("action", ""))


def bench() -> str:
    """The JSON Schema of a result of `stoker bench`, and of a line of its requests."""
    schemas, parts = msgspec.json.schema_components([results.Result, results.Line], ref_template="#/$defs/{name}")
    whole = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "result.json of `stoker bench`; each line of requests.jsonl is a Line",
        **schemas[0],
        "$defs": parts,
    }
    return msgspec.json.format(msgspec.json.encode(whole), indent=1).decode()


PAGES = {
    "bench-result.schema.json": bench,
    "commands.md": commands,
    "conditions.md": conditions,
    "resources.md": handbook.page,
}


def main() -> None:
    """Write all pages."""
    for name, make in PAGES.items():
        (REFERENCE / name).write_text(make().rstrip("\n") + "\n")


if __name__ == "__main__":
    main()
