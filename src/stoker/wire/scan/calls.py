"""Which call does a piece belong to, and is it written as the dialect says?

Engines leave the index out, give every parallel call the index 0, or repeat id, type and name (or null in their place)
in every piece. Clients put calls together by index, and some reject a null name, so each piece gets its real place.
"""

import msgspec

Maybe = msgspec.UnsetType


class Function(msgspec.Struct):
    """The function of a call, or a piece of it."""

    name: str | Maybe | None = msgspec.UNSET
    arguments: msgspec.Raw = msgspec.Raw(b"")


class Tool(msgspec.Struct):
    """A call, or a piece of it."""

    index: int | Maybe | None = msgspec.UNSET
    id: str | Maybe | None = msgspec.UNSET
    type: str | Maybe | None = msgspec.UNSET
    function: Function | None = None


class Seen(msgspec.Struct, frozen=True):
    """What a piece is: its real index, whether a call begins with it, what it says, and what is wrong with it."""

    index: int
    begins: bool
    id: str
    name: str
    piece: bytes  # the inside of a JSON string
    wrong: str = ""


class Calls:
    """The calls of one choice."""

    __slots__ = ("_ids", "_latest", "_place", "_seed", "empty")

    def __init__(self, seed: str) -> None:
        self._seed = seed  # of the ids that an engine leaves out
        self._ids: list[str] = []  # by real index
        self._place: dict[int, int] = {}  # the index that an engine gives: the real one
        self._latest = -1
        self.empty: set[int] = set()  # calls of which no argument has come

    def see(self, tool: Tool) -> Seen:
        """Look at one piece."""
        given = tool.index if isinstance(tool.index, int) else None
        id_ = tool.id if isinstance(tool.id, str) else ""
        function = tool.function or _NO_FUNCTION
        name = function.name if isinstance(function.name, str) else ""
        begins = self._begins(given, id_, name)
        if begins:
            self._latest = len(self._ids)
            self._ids.append(id_)
            self.empty.add(self._latest)
        elif given is not None:
            self._latest = self._place[given]
        if given is not None:
            self._place[given] = self._latest
        index = self._latest
        raw = bytes(function.arguments)
        piece = _piece(raw)
        if piece:
            self.empty.discard(index)
        wrong = _wrong(tool, function, index=index, begins=begins)
        id_ = id_ or (f"call_{self._seed}_{index}" if begins else "")
        if not wrong and raw[:1] == b"{":
            wrong = "tool_arguments"
        return Seen(index, begins, id_, name, piece, wrong)

    def last(self, seen: Seen) -> Seen:
        """Give the last piece of a call: when no argument has come, the empty object is in it."""
        if seen.index not in self.empty:
            return seen
        self.empty.discard(seen.index)
        return msgspec.structs.replace(seen, piece=b"{}", wrong="tool_arguments")

    def _begins(self, given: int | None, id_: str, name: str) -> bool:
        """Say whether a call begins: by a new index, or by an id or a name where a call with another id is open."""
        if given is not None and given not in self._place:
            return True
        if not self._ids:
            return True
        if given is None:
            return bool(name) and (not id_ or id_ not in self._ids)
        known = self._ids[self._place[given]]
        return bool(name and id_ and known and id_ != known)


def _wrong(tool: Tool, function: Function, *, index: int, begins: bool) -> str:
    """Name the first thing that a client could stumble over."""
    if tool.index != index:
        return "tool_index"
    if begins:
        return "tool_type" if tool.type is None else "" if tool.id else "tool_id"
    if tool.id is not msgspec.UNSET or tool.type is not msgspec.UNSET:
        return "tool_id"
    return "tool_name" if function.name is not msgspec.UNSET else ""


def _piece(raw: bytes) -> bytes:
    """Give arguments as the inside of a JSON string; some engines write the object itself."""
    if raw[:1] == b'"':
        return raw[1:-1]
    if raw[:1] == b"{":
        return msgspec.json.encode(raw.decode("utf-8", "replace"))[1:-1]
    return b""


_NO_FUNCTION = Function()
