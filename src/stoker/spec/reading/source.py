"""YAML or JSON text as plain values, each with the line on which it stands.

Duplicate keys are faults (the last would silently win), aliases are followed up to a limit (a few hundred bytes of
nested aliases can stand for gigabytes), and a merge key ``<<`` is expanded.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import yaml

from stoker.base.errors import Fault, Invalid
from stoker.base.json import Json
from stoker.spec.reading.faults import Path, show

_MOST_NODES: Final = 200_000
_PLAIN: Final = "tag:yaml.org,2002:"
_PLAIN_TAGS: Final = frozenset(
    f"{_PLAIN}{kind}" for kind in ("map", "seq", "str", "int", "float", "bool", "null", "timestamp", "value", "binary")
)
_AS_WRITTEN: Final = (f"{_PLAIN}timestamp", f"{_PLAIN}str", f"{_PLAIN}value", f"{_PLAIN}binary")


@dataclass(slots=True)
class Source:
    """One document: its value, and the line of each path in it."""

    value: Json
    lines: dict[Path, int] = field(default_factory=dict)

    def line(self, path: Path) -> int:
        """Tell the line of a path, or of the longest part of it that stands in the text."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 0)


def read(text: str, *, file: str) -> tuple[tuple[Source, ...], tuple[Fault, ...]]:
    """Read every document of a text, and say all that is wrong with their form."""
    # JSON is YAML, but for tabs; outside of strings, where JSON allows none, they are white space.
    is_json = text.lstrip()[:1] in ("{", "[")
    found: list[Source] = []
    faults: list[Fault] = []
    try:
        for node in yaml.compose_all(text.replace("\t", " ") if is_json else text, Loader=yaml.SafeLoader):
            reader = _Reader(file)
            source = Source(reader.value(node, ()), reader.lines)
            faults += reader.faults
            if source.value is not None:
                found.append(source)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        faults.append(Fault(message=f"no valid YAML: {error.problem}", file=file, line=mark.line + 1 if mark else 0))
    except yaml.YAMLError as error:
        faults.append(Fault(message=f"no valid YAML: {error}", file=file))
    except RecursionError:  # some kilobytes of "[" are enough
        faults.append(Fault(message="it is nested too deeply", file=file))
    except Invalid as error:
        faults += error.faults
    return tuple(found), tuple(faults)


class _Reader:
    """Turns one tree of nodes into values."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.lines: dict[Path, int] = {}
        self.faults: list[Fault] = []
        self._open: list[int] = []
        self._count = 0
        self._scalars = yaml.SafeLoader("")

    def value(self, node: yaml.Node, path: Path) -> Json:
        """Read one node and all below it."""
        self.lines.setdefault(path, node.start_mark.line + 1)
        self._count += 1
        if self._count > _MOST_NODES or id(node) in self._open:
            message = (
                "the aliases in it stand for too many values" if id(node) not in self._open else "it contains itself"
            )
            raise Invalid(Fault(message=message, file=self.file, line=node.start_mark.line + 1, field=show(path)))
        if node.tag not in _PLAIN_TAGS:
            message = f"the tag '{node.tag}' is not allowed; write plain values"
            raise Invalid(Fault(message=message, file=self.file, line=node.start_mark.line + 1, field=show(path)))
        self._open.append(id(node))
        value = self._inner(node, path)
        self._open.pop()
        return value

    def _inner(self, node: yaml.Node, path: Path) -> Json:
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(child, (*path, index)) for index, child in enumerate(node.value)]
        return self._scalar(node)

    def _mapping(self, node: yaml.MappingNode, path: Path) -> Json:
        found: dict[str, Json] = {}
        seen: dict[str, int] = {}
        for key_node, value_node in self._pairs(node):
            key = str(key_node.value)
            line = key_node.start_mark.line + 1
            if key in seen:
                message = f"the key '{key}' stands here a second time (first on line {seen[key]})"
                self.faults.append(Fault(message=message, file=self.file, line=line, field=show((*path, key))))
                continue
            seen[key] = line
            self.lines[(*path, key)] = line
            found[key] = self.value(value_node, (*path, key))
        return found

    def _pairs(self, node: yaml.MappingNode) -> Iterator[tuple[yaml.Node, yaml.Node]]:
        """Own pairs first; those merged in by ``<<`` only where there is no own one."""
        merged: list[yaml.Node] = []
        own: set[str] = set()
        for key_node, value_node in node.value:
            if key_node.tag == f"{_PLAIN}merge":
                merged += value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]
            else:
                own.add(str(key_node.value))
                yield key_node, value_node
        for other in merged:
            if not isinstance(other, yaml.MappingNode) or id(other) in self._open:
                raise Invalid(Fault(message="'<<' merges mappings only", file=self.file, line=node.start_mark.line + 1))
            for key_node, value_node in self._pairs(other):
                if str(key_node.value) not in own:
                    own.add(str(key_node.value))
                    yield key_node, value_node

    def _scalar(self, node: yaml.Node) -> Json:
        text = str(node.value)
        if node.tag in _AS_WRITTEN:
            return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        try:
            value = self._scalars.construct_object(node)
        except ValueError:  # a base-60 number or a date that does not exist
            return text
        return value if value is None or isinstance(value, bool | int | float | str) else text
