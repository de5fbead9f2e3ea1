"""What does this machine have? Read from /proc and from NVML; what cannot be read is named, never guessed."""

import os
import re
import resource
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pynvml

from stoker.facts.observed import Device, Machine

PROC: Final = Path("/proc")
CGROUP: Final = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Memory:
    total: int
    available: int


def survey(state: Path, *, proc: Path = PROC, cgroup: Path = CGROUP) -> Machine:
    """Look at the machine, as far as this process may use it: a container's limits count."""
    problems: list[str] = []
    memory = _limited(_memory(_text(proc / "meminfo", problems)), _text(cgroup / "memory.max", []))
    cores = _cores(_text(cgroup / "cpu.max", []))
    cpuinfo = _text(proc / "cpuinfo", problems)
    cpu = Device(
        id="cpu",
        kind="cpu",
        name=_cpu_name(cpuinfo),
        memory_bytes=memory.total,
        exclusive=False,
        attributes={"cores": str(cores)},
    )
    return Machine(
        cores=cores,
        memory_bytes=memory.total,
        memory_available_bytes=memory.available,
        disk_free_bytes=_disk_free(state),
        open_files_limit=resource.getrlimit(resource.RLIMIT_NOFILE)[1],  # the supervisor raises itself to the hard one
        cpu_flags=_flags(cpuinfo),
        devices=(cpu, *_gpus(problems)),
        boot_id=_text(proc / "sys/kernel/random/boot_id", problems).strip(),
        problems=tuple(problems),
    )


def _text(path: Path, problems: list[str]) -> str:
    try:
        return path.read_text()
    except OSError as error:
        problems.append(f"cannot read {path}: {error.strerror}")
        return ""


def _memory(meminfo: str) -> _Memory:
    sizes = {name: int(kib) << 10 for name, kib in re.findall(r"^(\w+):\s+(\d+) kB", meminfo, re.MULTILINE)}
    total = sizes.get("MemTotal", 0)
    return _Memory(total=total, available=sizes.get("MemAvailable", total))


def _limited(memory: _Memory, limit: str) -> _Memory:
    if not limit.strip().isdigit() or not memory.total:
        return memory
    return _Memory(total=min(memory.total, int(limit)), available=min(memory.available, int(limit)))


def _cores(cpu_max: str) -> int:
    """Cores that we may use: the affinity mask, cut by a quota such as ``150000 100000``."""
    cores = len(os.sched_getaffinity(0))
    quota, _, period = cpu_max.strip().partition(" ")
    if quota.isdigit() and period.isdigit() and int(period):
        cores = min(cores, max(1, int(quota) // int(period)))
    return cores


def _cpu_name(cpuinfo: str) -> str:
    found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return found.group(1) if found else "CPU"


def _flags(cpuinfo: str) -> tuple[str, ...]:
    found = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return tuple(found.group(1).split()) if found else ()


def _disk_free(folder: Path) -> int:
    while not folder.exists() and folder != folder.parent:  # it will be made below the first that exists
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _gpus(problems: list[str]) -> list[Device]:
    """GPUs by NVML. No library means no GPU; a library that fails is a problem that is told."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        return []
    except pynvml.NVMLError as error:
        problems.append(f"the NVIDIA driver does not answer: {error}")
        return []
    try:
        driver = str(pynvml.nvmlSystemGetDriverVersion())
        return [_gpu(number, driver) for number in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError as error:
        problems.append(f"the NVIDIA driver does not tell its devices: {error}")
        return []
    finally:
        pynvml.nvmlShutdown()


def _gpu(number: int, driver: str) -> Device:
    handle = pynvml.nvmlDeviceGetHandleByIndex(number)
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    attributes: Mapping[str, str] = {"index": str(number), "cudaComputeCapability": f"{major}.{minor}"}
    return Device(
        id=str(pynvml.nvmlDeviceGetUUID(handle)),
        kind="gpu",
        name=str(pynvml.nvmlDeviceGetName(handle)),
        memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
        driver=driver,
        attributes=dict(attributes),
    )
