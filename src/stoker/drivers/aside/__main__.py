"""What does the translator do? It translates one request after another, until nobody writes to it any more."""

import os
import signal
import sys
from typing import BinaryIO

import msgspec

from stoker.base.errors import Invalid
from stoker.drivers.aside.frames import HEAD, Job, Said, begun
from stoker.wire.ask.translate import Way, translate


def main() -> None:
    """Serve until the gateway has gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to everybody; the gateway decides
    os.nice(5)  # where cores are few, those who only forward go first
    serve(sys.stdin.buffer, sys.stdout.buffer)


def serve(given: BinaryIO, told: BinaryIO) -> None:
    """Translate what is given."""
    while len(head := given.read(HEAD.size)) == HEAD.size:
        part_bytes, body_bytes = HEAD.unpack(head)
        job = msgspec.json.decode(given.read(part_bytes), type=Job)
        body = given.read(body_bytes)
        if len(body) < body_bytes:
            return
        way = Way(client=job.client, upstream=job.upstream, engine=job.engine)
        try:
            change = translate(body, way, cap=job.cap, model=job.model, stream=job.stream)
        except Invalid as error:
            told.write(begun(Said(invalid=str(error)), 0))
        else:
            told.write(begun(Said(splices=change.splices), len(change.body)))
            told.write(change.body)
        told.flush()


if __name__ == "__main__":
    main()
