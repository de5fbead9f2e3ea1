"""A stand-in for the gateway or the controller: says which signal ended it. A gateway answers one line of HTTP."""

import os
import signal
import socket
import sys
from pathlib import Path
from types import FrameType

from stoker.drivers.live import Slot
from stoker.facts.live import InFlight, Live


def ready(folder: Path, name: str) -> None:
    with (folder / f"{name}.pids").open("a") as file:
        file.write(f"{os.getpid()}\n")


def main() -> None:
    arguments = sys.argv[1:]
    folder = Path(arguments[arguments.index("--state-dir") + 1])
    name = f"gateway-{arguments[arguments.index('--worker') + 1]}" if "--worker" in arguments else "controller"

    def end(number: int, _: FrameType | None) -> None:
        with (folder / f"{name}.ended").open("a") as file:
            file.write(f"{signal.Signals(number).name}\n")
        os._exit(0)

    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, end)
    if name == "controller":
        ready(folder, name)
        signal.pause()
    slot = Slot(folder / "run" / f"{name}.live")
    boot = f"{name}-{os.getpid()}"
    slot.begin(InFlight(id=f"{boot}-1", at=1.0, caller="ann"))
    slot.write(Live(worker=boot, pid=os.getpid(), at=1.0))
    ready(folder, name)
    listener = socket.socket(fileno=int(arguments[arguments.index("--listen-fd") + 1]))
    while True:
        client, _ = listener.accept()
        with client:
            client.recv(4096)
            client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")


if __name__ == "__main__":
    main()
