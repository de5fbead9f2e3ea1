"""Hold one engine for as long as it lives: ``python -I -S shim.py RUN_FOLDER NAME``, the order as JSON on stdin.

A child on a pipe dies with its parent, its exit code is lost with it, and a crash between fork and writing leaves an
orphan on the GPU. So each attempt gets this small process, which needs nobody else to be alive:

1. It has a session of its own, adopts what the engine leaves behind (subreaper) and opens the log file itself.
2. It promises before it acts: the run file is on the disk before the engine is forked. Then it says ``ok``.
3. It holds a lock for life. Lock held, boot id and start ticks equal: this is ours, adopt it.
4. It owns the stop timer, so a stop that was asked for happens though the controller dies meanwhile.
5. It writes the exit file at the end, when the whole subtree is gone and the devices are free.

Standard library only, started without site-packages: one of these runs beside every engine.
``--kill POINT:PID`` is for the survival tests: at that point kill that process (0: this one).
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import NoReturn, TypeAlias, TypedDict

PR_SET_CHILD_SUBREAPER = 36
LOG_BYTES = 64 << 20  # an engine that logs without end must not fill the disk that the ledger needs
WATCHED = {signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1}
DEFAULT_GRACE_SECONDS = 10.0
LOCK_TRIES = 40  # a host that looks whether the lock is free holds it for a moment
OOM_SCORE = "300"  # under memory pressure the engine goes, not the controller or the gateway

_Value: TypeAlias = str | int | float | list[str] | None


class Order(TypedDict):
    """What the host hands over: the run file as it will be, and what must not be in it."""

    run: dict[str, _Value]
    argv: list[str]
    env: dict[str, str]
    cwd: str
    secret: str


class Shim:
    """One attempt, from promise to exit file."""

    def __init__(self, folder: Path, name: str, kills: list[str]) -> None:
        self.folder = folder
        self.name = name
        self.kills = kills
        self.engine = 0
        self.status: int | None = None
        self.log = ""
        self.log_bytes = LOG_BYTES
        self.deadline: float | None = None  # on the monotonic clock; None: nobody asked to stop

    def at(self, point: str) -> None:
        """Kill the process that a survival test named for this point."""
        for kill in self.kills:
            where, _, pid = kill.partition(":")
            if where == point:
                os.kill(int(pid) or os.getpid(), signal.SIGKILL)

    def path(self, suffix: str) -> Path:
        """Name one of the files of this attempt."""
        return self.folder / f"{self.name}{suffix}"

    def promise(self, order: Order) -> str:
        """Lock, open the log, write the run file; returns what is wrong, or nothing."""
        if not _lock(self.path(".lock")):
            return "held"
        self.at("locked")
        if self.path(".json").exists():
            return "held"
        self.log = str(order["run"]["log"])
        _open_log(self.log)
        if order["secret"]:
            _write(self.path(".secret"), order["secret"])
        self.at("before_run_file")
        order["run"] |= {"shim_pid": os.getpid(), "shim_start_ticks": _ticks(os.getpid())}
        _write(self.path(".json"), json.dumps(order["run"]))
        self.at("after_run_file")
        return ""

    def start(self, order: Order) -> str:
        """Fork and exec the engine; returns why exec failed, or nothing once it has succeeded."""
        reader, writer = os.pipe2(os.O_CLOEXEC)
        self.at("before_fork")
        self.engine = os.fork()
        if not self.engine:
            _become(order, writer)
        self.at("after_fork")
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            problem = pipe.read().decode()  # ends when exec closes the other end
        self.at("after_exec")
        if not problem:
            order["run"] |= {"engine_pid": self.engine, "engine_start_ticks": _ticks(self.engine)}
            _write(self.path(".json"), json.dumps(order["run"]))
        self.at("running")
        return problem

    def hold(self) -> None:
        """Wait until the engine and all that it left behind have gone, ending them when somebody asked for it."""
        while not self._reap():
            if self.status is not None:  # the engine is gone: what is left of it goes at once
                _kill_all(signal.SIGKILL)
            elif self.deadline is not None and time.monotonic() >= self.deadline:  # noqa: TID251 - no stoker here
                self.at("killing")
                _kill_all(signal.SIGKILL)
            _cap_log(self.log, self.log_bytes)
            woken = signal.sigtimedwait(WATCHED, 0.05 if self.status is not None else self._patience())
            self._look_for_stop(None if woken is None else woken.si_signo)

    def finish(self, error: str) -> None:
        """Write the exit file; the lock goes with this process."""
        self.at("before_exit_file")
        code = signal_number = None
        if not error and self.status is not None:
            code = os.WEXITSTATUS(self.status) if os.WIFEXITED(self.status) else None
            signal_number = os.WTERMSIG(self.status) if os.WIFSIGNALED(self.status) else None
        ended = {"name": self.name, "at": time.time(), "code": code, "signal": signal_number, "error": error}  # noqa: TID251
        _write(self.path(".exit.json"), json.dumps(ended))
        self.at("after_exit_file")

    def _patience(self) -> float:
        """How long to sleep: a stop file whose signal was lost is found within a second."""
        left = 1.0 if self.deadline is None else self.deadline - time.monotonic()  # noqa: TID251
        return max(0.05, min(1.0, left))  # 0.05: killed, and waiting for it to be gone

    def _reap(self) -> bool:
        """Collect what has ended; True when no child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if not pid:
                return False
            if pid == self.engine:
                self.status = status
                self.at("engine_ended")

    def _look_for_stop(self, woken: int | None) -> None:
        deadline = None
        if woken in (signal.SIGTERM, signal.SIGINT):  # somebody's own kill, without a host
            deadline = time.monotonic() + DEFAULT_GRACE_SECONDS  # noqa: TID251
        with contextlib.suppress(OSError, ValueError):
            deadline = float(self.path(".stop").read_text())
        if deadline is None:
            return
        if self.deadline is None:
            self.at("stopping")
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.engine, signal.SIGTERM)
        self.deadline = deadline if self.deadline is None else min(self.deadline, deadline)


def _become(order: Order, writer: int) -> NoReturn:
    """In the forked child: turn into the engine, or tell why not."""
    try:
        os.setpgid(0, 0)
        for number in WATCHED:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text(OOM_SCORE)
        if order["cwd"]:
            os.chdir(order["cwd"])
        os.execvpe(order["argv"][0], order["argv"], {**os.environ, **order["env"]})  # noqa: S606, TID251 - a clean one
    except BaseException as error:  # noqa: BLE001 - whatever it is, the parent must hear of it
        os.write(writer, f"{order['argv'][0]}: {getattr(error, 'strerror', None) or error}".encode())
    os._exit(127)


def _kill_all(number: int) -> None:
    """Signal everything below this process, also what left its group or its session."""
    parents = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - no Path objects for some hundred processes
        if entry.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                stat = Path(f"/proc/{entry}/stat").read_text()
                parents[int(entry)] = int(stat.rpartition(")")[2].split()[1])
    below = {os.getpid()}
    while True:
        more = {pid for pid, parent in parents.items() if parent in below} - below
        if not more:
            break
        below |= more
    for pid in below - {os.getpid()}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _lock(path: Path) -> bool:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno != errno.EWOULDBLOCK:
                raise
            time.sleep(0.01)
        else:
            return True  # the descriptor stays open for life
    os.close(fd)
    return False


def _open_log(path: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    os.dup2(fd, 2)
    os.close(fd)


def _cap_log(path: str, most: int) -> None:
    """Keep the newer half of a log that has grown too long as ``.1``, and go on with an empty one.

    The engine holds its own descriptor, opened for appending: it goes on at the new end. What it writes between the
    copy and the cut is lost.
    """
    size = os.fstat(2).st_size
    if size <= most:
        return
    with contextlib.suppress(OSError), open(path, "rb") as log, open(f"{path}.1", "wb") as kept:  # noqa: PTH123
        log.seek(size - most // 2)
        while block := log.read(1 << 20):
            kept.write(block)
    os.ftruncate(2, 0)


def _write(path: Path, text: str) -> None:
    """Replace a file so that it is there whole, also after a power cut."""
    part = path.with_name(f".{path.name}.part")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, text.encode())
        os.fsync(fd)
    finally:
        os.close(fd)
    part.replace(path)
    fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _ticks(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def _answer(text: str) -> None:
    """Tell the host, and let go of its pipe: whoever waits for its end must not wait for the engine."""
    with contextlib.suppress(BrokenPipeError):
        os.write(1, text.encode())
    os.dup2(2, 1)


def main(arguments: list[str]) -> int:
    """Daemonize, promise, start, hold, finish."""
    folder, name, *options = arguments
    shim = Shim(
        Path(folder), name, [kill for flag, kill in zip(options[::2], options[1::2], strict=True) if flag == "--kill"]
    )
    order: Order = json.loads(sys.stdin.read())  # a host that died while writing leaves broken JSON: nothing happens
    shim.log_bytes = next(
        (int(v) for f, v in zip(options[::2], options[1::2], strict=True) if f == "--log-bytes"), LOG_BYTES
    )
    shim.at("started")
    if os.fork():
        return 0
    os.setsid()
    os.umask(0o077)
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    devnull = os.open(os.devnull, os.O_RDONLY)
    os.dup2(devnull, 0)
    os.close(devnull)
    shim.at("daemonized")
    try:
        problem = shim.promise(order)
    except OSError as error:
        problem = f"cannot write in {folder}: {error.strerror or error}"
    _answer(problem or "ok")
    if problem:
        return 1
    failure = shim.start(order)
    shim.hold()
    shim.finish(failure)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
