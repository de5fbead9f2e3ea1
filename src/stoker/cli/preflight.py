"""What `stoker up` looks at before it starts, what it applies, and what it prints at the end."""

import importlib.util
import ipaddress
import re
import ssl
from collections.abc import Set as AbstractSet
from pathlib import Path

import msgspec

from stoker.base.errors import Fault, Invalid
from stoker.base.json import Json, JsonObject
from stoker.base.layout import Layout
from stoker.base.units import show_bytes
from stoker.cli.output import items, text
from stoker.drivers import devices

_REPO = re.compile(r"^[\w.-]+/[\w.-]+(@[0-9a-f]{7,40}|@[\w./-]+)?$")
_FILES_WANTED = 4096
_MEMORY_WANTED = 2 << 30
_DISK_WANTED = 2 << 30
_SOCKET_NAME_BYTES = 107  # sun_path of Linux, without its final zero


def place(layout: Layout) -> None:
    """Refuse a state directory whose sockets would get names that the system does not take."""
    spare = _SOCKET_NAME_BYTES - len(str(layout.api_socket).encode())
    if spare < 0:
        raise Invalid(
            Fault(
                message=f"the path {layout.root} is {-spare} bytes too long for a Unix socket in it",
                field="--state-dir",
                hint="take a shorter one; STOKER_STATE_DIR names it too",
            )
        )


def address(listen: str, *, insecure: bool, field: str = "--listen") -> None:
    """Refuse an address that is none, or that would carry keys in the clear beyond this machine."""
    host, _, port = listen.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise Invalid(Fault(message=f"'{listen}' is no address", field=field, hint="HOST:PORT, as in 127.0.0.1:8080"))
    try:
        local = host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        local = False
    if not local and field == "--admin":
        raise Invalid(
            Fault(message=f"metrics have no key, and other machines reach {host}", field=field, hint="127.0.0.1:PORT")
        )
    if not local and not insecure:
        raise Invalid(
            Fault(
                message=f"other machines reach {host}: without TLS, keys and prompts cross the network in the clear",
                field="--listen",
                hint="give --tls-cert and --tls-key, or put TLS in front and say --insecure, or listen on 127.0.0.1",
            )
        )


def certificate(cert: Path | None, key: Path | None) -> list[str]:
    """Write the words for certificate and key; raises Invalid for a pair that no client could be served with."""
    if cert is None and key is None:
        return []
    if cert is None or key is None:
        missing = "--tls-key" if key is None else "--tls-cert"
        raise Invalid(Fault(message="certificate and key go together", field=missing, hint=f"give {missing} too"))
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(cert, key)
    except OSError as error:  # ssl.SSLError is one
        message = f"{cert} with {key}: {error.strerror or error}"
        raise Invalid(Fault(message=message, field="--tls-cert", hint="a chain and its key, both PEM")) from error
    return ["--tls-cert", str(cert.absolute()), "--tls-key", str(key.absolute())]


def machine(state: Path) -> list[str]:
    """Tell what of this machine will be a problem, each with what to do."""
    seen = devices.survey(state)
    notes = list(seen.problems)
    if seen.open_files_limit < _FILES_WANTED:
        notes.append(f"only {seen.open_files_limit} open files are allowed; each stream needs two: `ulimit -n 65536`")
    if seen.memory_available_bytes < _MEMORY_WANTED:
        notes.append(
            f"only {show_bytes(seen.memory_available_bytes)} of memory are free; even the demo model wants 1 GiB"
        )
    if seen.disk_free_bytes < _DISK_WANTED:
        notes.append(f"only {show_bytes(seen.disk_free_bytes)} are free on the disk of {state}")
    gpus = [d for d in seen.devices if d.kind == "gpu"]
    if gpus:
        names = ", ".join(f"{d.name} ({show_bytes(d.memory_bytes)})" for d in gpus)
        notes.append(
            f"THIS MACHINE HAS {len(gpus)} GPU(S) ({names}) AND THE EMBEDDED ENGINE USES ONLY THE CPU: "
            "`stoker engine add vllm --python PATH`, then a ModelDeployment with engine vllm"
        )
    return notes


def manifests(model: str, *, exposed: dict[str, Json], accept: bool, port: int) -> JsonObject:
    """Write the resources for one model: a gateway with an explicit selector, a use case, deployment and service."""
    source = _source(model)
    name = _label(model or "demo")
    if accept:
        source["acceptLicence"] = True
    labels: dict[str, Json] = {"stoker.dev/deployment": name}
    documents: list[JsonObject] = [
        _document(
            "InferenceGateway",
            "default",
            {
                "listeners": [{"port": port}],
                "auth": {"methods": ["APIKey"]},
                "serviceSelector": {"matchLabels": exposed},
            },
            namespaced=False,
        ),
        _document("UseCase", "chat", {"preset": "chat"}),
        _document(
            "ModelDeployment",
            name,
            {
                "replicas": 1,
                "model": source,
                "runtime": {"kind": "embedded"},
                "engine": {"name": "llama.cpp", "contextTokens": 4096, "maxSequences": 4},
            },
        ),
        _document(
            "ModelService",
            name,
            {"endpoints": [{"name": name, "selector": {"matchLabels": labels}}], "useCaseRef": {"name": "chat"}},
            labels=exposed,
        ),
    ]
    # JSON is YAML: what is applied here goes the same way as a file of the user.
    sources: list[Json] = [
        {"file": _origin(str(d["kind"])), "text": msgspec.json.encode(d).decode()} for d in documents
    ]
    return {"sources": sources, "namespace": "default", "deployment": name}


def without(manifests: JsonObject, kinds: AbstractSet[str]) -> JsonObject:
    """Leave out the documents of some kinds."""
    left_out = {_origin(kind) for kind in kinds}
    return {**manifests, "sources": [s for s in items(manifests, "sources") if text(s, "file") not in left_out]}


def _origin(kind: str) -> str:
    return f"stoker up: {kind}"


def banner(status: JsonObject, *, key: str, note: str, python: str) -> str:
    """Write what a person needs to use it: endpoint, key, curl, Python."""
    endpoint = text(status, "endpoint")
    names = [text(s, "model") for s in items(status, "services") if s.get("routable")]
    model = names[0] if names else "MODEL"
    shown = key or "YOUR_KEY"
    ask: JsonObject = {"model": model, "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 64}
    headers = f"-H 'Authorization: Bearer {shown}' -H 'Content-Type: application/json'"
    call = f'model="{model}", messages=[{{"role": "user", "content": "Say hello."}}], max_tokens=64'
    return "\n".join(
        [
            "",
            f"  endpoint  {endpoint}",
            f"  models    {', '.join(names)}",
            f"  key       {key or '-'}   ({note})",
            "",
            f"curl -s {endpoint}/chat/completions {headers} -d '{msgspec.json.encode(ask).decode()}'",
            "",
            f"{python}" + ("" if _has_openai() else f"        # first: {python} -m pip install openai"),
            "from openai import OpenAI",
            f'client = OpenAI(base_url="{endpoint}", api_key="{shown}")',
            f"print(client.chat.completions.create({call}).choices[0].message.content)",
            "",
        ]
    )


def _has_openai() -> bool:
    return importlib.util.find_spec("openai") is not None


def _source(model: str) -> JsonObject:
    """Tell a file or folder, a hub repository and a catalogue name apart. Raises Invalid with the nearest name."""
    from stoker.base.errors import nearest
    from stoker.drivers import models

    known = models.names()
    if not model:
        return {"name": models.DEMO}
    if model in known:
        return {"name": model}
    if Path(model).expanduser().exists():
        return {"path": str(Path(model).expanduser().absolute())}
    if _REPO.match(model) and not model.startswith((".", "/")):
        repo, _, revision = model.partition("@")
        return {"repo": repo, **({"revision": revision} if revision else {})}
    raise Invalid(
        Fault(
            message=f"'{model}' is no file, no folder, no hub repository and no known name",
            field="--model",
            hint=nearest(model, known) or f"known names: {', '.join(known)}",
        )
    )


def _label(text_: str) -> str:
    base = text_.partition("@")[0].rstrip("/").rpartition("/")[2].lower().removesuffix(".gguf")
    return re.sub(r"[^a-z0-9]+", "-", base).strip("-")[:50] or "model"


def _document(
    kind: str, name: str, spec: JsonObject, *, labels: dict[str, Json] | None = None, namespaced: bool = True
) -> JsonObject:
    metadata: JsonObject = {
        "name": name,
        **({"namespace": "default"} if namespaced else {}),
        **({"labels": labels} if labels else {}),
    }
    return {"apiVersion": "stoker.dev/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}
