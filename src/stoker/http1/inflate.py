"""What did an engine compress, although nobody asked it to? Plain bytes out, bounded, or a clear no."""

import zlib
from typing import Final

_MAX_BYTES: Final = 64 << 20  # out of one read: a few bytes must not unpack into all memory
_GZIP_OR_ZLIB: Final = 47  # window bits that take both headers


class Inflate:
    """Decompresses one body."""

    __slots__ = ("_object",)

    def __init__(self) -> None:
        self._object = zlib.decompressobj(_GZIP_OR_ZLIB)

    def feed(self, data: bytes) -> bytes:
        """Take compressed bytes, cut anywhere; raises ValueError for what is no such stream or far too large."""
        try:
            out = self._object.decompress(data, _MAX_BYTES)
        except zlib.error as error:
            raise ValueError(f"not compressed as it says: {error}") from error
        if self._object.unconsumed_tail:
            raise ValueError(f"unpacks to more than {_MAX_BYTES} bytes")
        return out


def unpacker(encoding: bytes) -> Inflate | None:
    """Choose what unpacks a content-encoding, None for nothing; raises ValueError for an unknown one."""
    name = encoding.strip().lower()
    if name in (b"", b"identity"):
        return None
    if name in (b"gzip", b"x-gzip", b"deflate"):
        return Inflate()
    raise ValueError(f"encoding {name[:40].decode('latin-1')!r} is not known")
