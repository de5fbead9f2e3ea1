"""The process of one gateway worker: ``python -m stoker.gateway``."""

import argparse
import asyncio
import gc
import sys
from pathlib import Path

import uvloop

from stoker.base import log
from stoker.base.errors import Invalid, StokerError
from stoker.gateway.worker import Options, Worker, inherited, listen


def arguments() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = argparse.ArgumentParser(prog="python -m stoker.gateway", description="One worker of the Stoker gateway.")
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--worker", type=int, default=0)
    public = parser.add_mutually_exclusive_group(required=True)
    public.add_argument("--listen-fd", type=int, help="an inherited listening socket")
    public.add_argument("--listen", metavar="HOST:PORT")
    admin = parser.add_mutually_exclusive_group()
    admin.add_argument("--admin-fd", type=int, help="an inherited listening socket for metrics; loopback")
    admin.add_argument("--admin", metavar="HOST:PORT")
    parser.add_argument("--tls-cert", default="", metavar="FILE", help="certificate chain; read again when it changes")
    parser.add_argument("--tls-key", default="", metavar="FILE", help="its key")
    parser.add_argument("--insecure-bind", action="store_true", help="serve other machines without TLS")
    parser.add_argument("--unmetered", action="store_true", help="serve although requests cannot be accounted for")
    parser.add_argument("--drain", type=float, metavar="SECONDS", help="how long running requests may take at the end")
    parser.add_argument("--loop", choices=("uvloop", "asyncio"), default="uvloop")
    return parser


def main() -> int:
    """Run until told to stop."""
    given = arguments().parse_args()
    log.set_up()
    options = Options(
        folder=given.state_dir,
        worker=given.worker,
        unmetered=given.unmetered,
        drain=given.drain,
        cert_file=given.tls_cert,
        key_file=given.tls_key,
        insecure=given.insecure_bind,
    )

    async def serve() -> None:
        worker = Worker(options)
        public = inherited(given.listen_fd) if given.listen_fd is not None else listen(given.listen)
        admin = inherited(given.admin_fd) if given.admin_fd is not None else given.admin and listen(given.admin)
        stop = asyncio.Event()
        worker.obey(stop)
        gc.collect()
        gc.freeze()  # what lives as long as the process need not be looked at again
        gc.set_threshold(20_000, 20, 20)  # a request leaves few cycles; the default stops the loop thousands of times
        await worker.run(public, admin or None, stop=stop)

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop if given.loop == "uvloop" else None) as runner:
            runner.run(serve())
    except StokerError as error:
        sys.stderr.write(f"{error}\n")
        return 2 if isinstance(error, Invalid) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
