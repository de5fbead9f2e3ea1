"""The supervisor's process: ``python -m stoker.control.supervisor``."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from stoker.base import log
from stoker.base.errors import StokerError
from stoker.control.supervisor.watch import ADMIN, LISTEN, Settings, run


def main(argv: Sequence[str]) -> int:
    """Read the command line and supervise."""
    parser = argparse.ArgumentParser(prog="stoker.control.supervisor")
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--listen", default=LISTEN)
    parser.add_argument("--admin", default=ADMIN)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--unmetered", action="store_true")
    parser.add_argument("--tls-cert", default="")
    parser.add_argument("--tls-key", default="")
    parser.add_argument("--insecure-bind", action="store_true")
    parser.add_argument("--hub-endpoint", default="")
    asked = parser.parse_args(argv)
    log.set_up()
    try:
        return run(Settings(**vars(asked)))
    except StokerError as error:
        sys.stderr.write(f"{error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
