"""The machine as recorded pages of /proc tell it, and as it is here."""

import os
import types
from pathlib import Path

import pynvml
import pytest

from stoker.drivers import devices

MEMINFO = "MemTotal:       32768000 kB\nMemFree:         1000000 kB\nMemAvailable:   16384000 kB\n"
CPUINFO = "processor\t: 0\nmodel name\t: AMD EPYC 7763 64-Core Processor\nflags\t\t: fpu avx avx2 fma\n"


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "sys/kernel/random").mkdir(parents=True)
    (tmp_path / "sys/kernel/random/boot_id").write_text("a-boot\n")
    (tmp_path / "meminfo").write_text(MEMINFO)
    (tmp_path / "cpuinfo").write_text(CPUINFO)
    return tmp_path


def test_recorded_pages(proc: Path) -> None:
    seen = devices.survey(proc / "not/made/yet", proc=proc, cgroup=proc)

    assert (seen.memory_bytes, seen.memory_available_bytes) == (32768000 << 10, 16384000 << 10)
    assert (seen.cpu_flags, seen.boot_id, seen.problems) == (("fpu", "avx", "avx2", "fma"), "a-boot", ())
    assert (seen.devices[0].id, seen.devices[0].exclusive) == ("cpu", False)
    assert seen.devices[0].name == "AMD EPYC 7763 64-Core Processor"
    assert seen.disk_free_bytes > 0
    assert seen.cores == len(os.sched_getaffinity(0))


def test_the_limits_of_a_container_count(proc: Path) -> None:
    (proc / "memory.max").write_text(f"{4 << 30}\n")
    (proc / "cpu.max").write_text("100000 100000\n")

    seen = devices.survey(proc, proc=proc, cgroup=proc)

    assert (seen.memory_bytes, seen.memory_available_bytes, seen.cores) == (4 << 30, 4 << 30, 1)


def test_no_limit_is_no_limit(proc: Path) -> None:
    (proc / "memory.max").write_text("max\n")
    (proc / "cpu.max").write_text("max 100000\n")

    assert devices.survey(proc, proc=proc, cgroup=proc).memory_bytes == 32768000 << 10


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    seen = devices.survey(tmp_path, proc=tmp_path, cgroup=tmp_path)

    assert [problem.split(": ")[0] for problem in seen.problems] == [
        f"cannot read {tmp_path / name}" for name in ("meminfo", "cpuinfo", "sys/kernel/random/boot_id")
    ]
    assert seen.memory_bytes == 0


class Nvml(types.SimpleNamespace):
    """NVML as its own functions answer on a machine with one GPU."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__(error=error, NVMLError=pynvml.NVMLError, closed=0)
        self.NVMLError_LibraryNotFound = pynvml.NVMLError_LibraryNotFound

    def nvmlInit(self) -> None:  # noqa: N802
        if self.error:
            raise self.error

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.closed += 1

    nvmlSystemGetDriverVersion = staticmethod(lambda: "580.95.05")  # noqa: N815
    nvmlDeviceGetCount = staticmethod(lambda: 1)  # noqa: N815
    nvmlDeviceGetHandleByIndex = staticmethod(lambda number: number)  # noqa: N815
    nvmlDeviceGetCudaComputeCapability = staticmethod(lambda _: (9, 0))  # noqa: N815
    nvmlDeviceGetUUID = staticmethod(lambda _: "GPU-1234")  # noqa: N815
    nvmlDeviceGetName = staticmethod(lambda _: "NVIDIA H100 80GB HBM3")  # noqa: N815
    nvmlDeviceGetMemoryInfo = staticmethod(lambda _: types.SimpleNamespace(total=80 << 30))  # noqa: N815


def test_a_gpu_is_seen(proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = Nvml()
    monkeypatch.setattr(devices, "pynvml", nvml)

    _, gpu = devices.survey(proc, proc=proc, cgroup=proc).devices

    assert (gpu.id, gpu.kind, gpu.exclusive, gpu.memory_bytes) == ("GPU-1234", "gpu", True, 80 << 30)
    assert (gpu.driver, gpu.attributes["cudaComputeCapability"]) == ("580.95.05", "9.0")
    assert nvml.closed == 1


@pytest.mark.parametrize(
    ("code", "problems"),
    [(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, 0), (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, 1)],
)
def test_no_library_is_no_gpu_and_a_broken_driver_is_told(
    proc: Path, monkeypatch: pytest.MonkeyPatch, code: int, problems: int
) -> None:
    monkeypatch.setattr(devices, "pynvml", Nvml(pynvml.NVMLError(code)))

    seen = devices.survey(proc, proc=proc, cgroup=proc)

    assert (len(seen.devices), len(seen.problems)) == (1, problems)
