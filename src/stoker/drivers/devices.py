"""What does this machine have: cores, memory, disk, file limit, CPU instructions, accelerators?

The GPUs come from NVML; without its library there are none. What could not be read is told, never taken for zero.
"""

import os
import resource
from functools import lru_cache
from pathlib import Path
from typing import Final

import psutil

from stoker.facts.observed import Device, Machine

WANTED: Final = ("avx2", "fma", "f16c", "bmi2")  # what the embedded engine's build is made for


def survey(state: Path, *, proc: Path = Path("/proc")) -> Machine:
    """Look at the whole machine; ``state`` is the folder whose disk matters."""
    flags, name, problems = _cpu(proc)
    missing = [flag for flag in WANTED if flags and flag not in flags]
    if missing:
        problems.append(
            f"this CPU lacks {', '.join(missing)}, which the embedded engine needs: "
            "build llama.cpp for it and use runtime {kind: command, path: llama-server}, or an external endpoint"
        )
    memory = psutil.virtual_memory()
    gpus, trouble = _gpus()
    if trouble:
        problems.append(trouble)
    disk = psutil.disk_usage(str(_existing(state)))
    cpu = Device(id="cpu", kind="cpu", name=name, memory_bytes=memory.total, exclusive=False)
    return Machine(
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=memory.total,
        memory_available_bytes=memory.available,
        disk_free_bytes=disk.free,
        open_files_limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        cpu_flags=tuple(sorted(flags)),
        devices=(cpu, *gpus),
        boot_id=_read(proc / "sys/kernel/random/boot_id").strip(),
        problems=tuple(problems),
    )


@lru_cache(maxsize=1)
def accelerators_and_cpu() -> tuple[Device, ...]:
    """List the devices; they do not change while a process lives, and asking NVML each pass would wake the GPU."""
    return survey(Path("/")).devices


def _cpu(proc: Path) -> tuple[frozenset[str], str, list[str]]:
    page = _read(proc / "cpuinfo")
    if not page:
        return frozenset(), "unknown CPU", ["/proc/cpuinfo cannot be read: the CPU's instructions are unknown"]
    fields = dict(line.split(":", 1) for line in page.splitlines() if ":" in line)
    named = {key.strip(): value.strip() for key, value in fields.items()}
    return frozenset(named.get("flags", "").split()), named.get("model name", "CPU"), []


def _gpus() -> tuple[list[Device], str]:
    """Ask NVML. A library that is absent means no GPU; one that fails is a problem to tell."""
    import pynvml  # noqa: PLC0415 - only here, and only once

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError_LibraryNotFound:
        return [], ""
    except pynvml.NVMLError as error:
        return [], f"the NVIDIA driver answers '{error}': GPUs, if any, are not used"
    try:
        driver = pynvml.nvmlSystemGetDriverVersion()
        return [_gpu(pynvml.nvmlDeviceGetHandleByIndex(i), driver) for i in range(pynvml.nvmlDeviceGetCount())], ""
    except pynvml.NVMLError as error:
        return [], f"the NVIDIA driver answers '{error}': GPUs are not used"
    finally:
        pynvml.nvmlShutdown()


def _gpu(handle: object, driver: str) -> Device:
    import pynvml  # noqa: PLC0415 - see above

    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    return Device(
        id=pynvml.nvmlDeviceGetUUID(handle),
        kind="gpu",
        name=pynvml.nvmlDeviceGetName(handle),
        memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
        driver="gpu.nvidia.com",
        attributes={
            "productName": pynvml.nvmlDeviceGetName(handle),
            "cudaComputeCapability": f"{major}.{minor}.0",
            "driverVersion": driver,
        },
    )


def _existing(path: Path) -> Path:
    return next((p for p in (path, *path.parents) if p.exists()), Path("/"))


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
