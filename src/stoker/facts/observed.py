"""What the controller sees of the world in one pass. Plain data; gathered by drivers, read by `decide`."""

from enum import StrEnum
from typing import Final

import msgspec

SCHEMA_VERSION: Final = 1


class Phase(StrEnum):
    """The life of one engine process."""

    STARTING = "starting"  # the shim has promised it (run file written), exec not yet seen
    RUNNING = "running"
    STOPPING = "stopping"  # asked to stop, still there
    EXITED = "exited"
    LOST = "lost"  # the machine rebooted, or shim and engine vanished without an exit file


class RunFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`run/<uid>-<attempt>.json`, written by the shim with fsync *before* exec. Enough to adopt the engine."""

    name: str  # <uid>-<attempt>
    uid: str
    attempt: int
    boot_id: str
    shim_pid: int
    shim_start_ticks: int  # field 22 of /proc/<pid>/stat: tells a reused pid apart
    spec_hash: str
    port: int
    schema_version: int = SCHEMA_VERSION
    engine_pid: int = 0  # 0 until exec succeeded
    engine_start_ticks: int = 0
    devices: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()  # without secrets
    secret_file: str = ""  # path of the engine's bearer token, 0600
    log: str = ""
    started_at: float = 0.0


class ExitFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`run/<uid>-<attempt>.exit.json`, written by the shim at the end, when the whole subtree is gone."""

    name: str
    at: float
    code: int | None = None
    signal: int | None = None
    error: str = ""  # exec failed: why
    schema_version: int = SCHEMA_VERSION


class Running(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One engine attempt as its host sees it now."""

    run: RunFile
    phase: Phase
    exit: ExitFile | None = None
    rss_bytes: int = 0


class Device(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One accelerator, or the CPU itself, as it was found on a machine."""

    id: str  # what CUDA_VISIBLE_DEVICES takes (GPU uuid), or "cpu"
    kind: str  # gpu | cpu
    name: str
    memory_bytes: int
    driver: str = ""
    attributes: dict[str, str] = {}
    exclusive: bool = True  # a GPU is; the CPU is shared


class Machine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What this machine has. ``problems`` names what could not be read."""

    cores: int
    memory_bytes: int
    memory_available_bytes: int = 0
    disk_free_bytes: int = 0
    open_files_limit: int = 0
    cpu_flags: tuple[str, ...] = ()
    devices: tuple[Device, ...] = ()
    boot_id: str = ""
    problems: tuple[str, ...] = ()
