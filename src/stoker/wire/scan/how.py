"""How is an engine's answer to be read: for whom, and with which of its habits in mind?"""

import msgspec

from stoker.wire.write.writer import Writer


class How(msgspec.Struct, frozen=True, kw_only=True):
    """What a scanner must know."""

    strip_usage: bool = False  # the usage chunk is ours and does not go on
    aggregate: bool = False  # the client wants one body
    writer: Writer | None = None  # who translates; None: the client speaks the engine's dialect
    tools: bool = False  # tools were asked for, so marks of a call in the text are a fault
    engine: str = "llama.cpp"
    seed: str = ""  # of ids that an engine leaves out
