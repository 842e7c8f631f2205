"""Reads the printed form of `fusewise.ir.text` back: text in, an equal graph out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np

from fusewise.errors import UsageError
from fusewise.ir.dtypes import STRING, dtype_named
from fusewise.ir.graph import Attribute, Constant, Graph, Node, Subgraph
from fusewise.ir.types import Dim, MapType, OptionalType, SequenceType, TensorType, ValueType

__all__ = ["parse_graph"]

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<string>"(?:[^"\\]|\\.)*")
    | \#(?P<key>\w+)
    | (?P<number>[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|inf\b|nan\b)f?)(?![\w./-]|:\w)
    | (?P<name>[A-Za-z_/][\w./-]*(?:::?[\w./-]+)*)
    | (?P<mark>[\[\](){}=,:@?*])
    )""",
    re.VERBOSE | re.ASCII,
)

_KEYWORDS = ("graph", "opset", "metadata", "input", "constant", "value", "return")

Side = Mapping[str, Constant | bytes]
T = TypeVar("T")


def parse_graph(text: str, constants: Side | None = None) -> Graph:
    """The graph that `print_graph` printed.

    `constants` holds, by the key behind `#`, what the text does not spell out; `side_table(graph)` makes one, and tests may
    use keys of their own. Blank lines are skipped. Raises `UsageError` with the line at fault.
    """
    reading = _Reading(constants or {})
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            try:
                reading.line(_Line(line, reading.side))
            except (ValueError, KeyError, IndexError) as error:
                raise UsageError(f"line {number} of the graph's text: {error} in {line.strip()!r}") from error
    return reading.graph()


class _Line:
    """One line as tokens, and the small grammar they follow."""

    def __init__(self, line: str, side: Side) -> None:
        self.side = side
        self.tokens: list[tuple[str, str]] = []
        position = 0
        while line[position:].strip():
            found = _TOKEN.match(line, position)
            if found is None or found.lastgroup is None:
                column = len(line) - len(line[position:].lstrip()) + 1
                raise ValueError(f"unreadable text at column {column}")
            self.tokens.append((found.lastgroup, found[found.lastgroup]))
            position = found.end()
        self.at = 0

    def peek(self) -> tuple[str, str]:
        return self.tokens[self.at] if self.at < len(self.tokens) else ("end", "")

    def take(self) -> tuple[str, str]:
        token = self.peek()
        self.at += 1
        return token

    def has(self, mark: str) -> bool:
        """Take the mark or word if it comes next."""
        kind, text = self.peek()
        if text == mark and kind != "string":
            self.at += 1
            return True
        return False

    def expect(self, mark: str) -> None:
        if not self.has(mark):
            raise ValueError(f"expected {mark!r}, found {self.peek()[1]!r}")

    def end(self) -> None:
        if self.peek()[0] != "end":
            raise ValueError(f"unexpected {self.peek()[1]!r}")

    def name(self) -> str:
        """A name; `_` is the empty one."""
        kind, text = self.take()
        if kind == "string":
            return str(json.loads(text))
        if kind != "name":
            raise ValueError(f"expected a name, found {text!r}")
        return "" if text == "_" else text

    def integer(self) -> int:
        return int(self.take()[1])

    def several(self, item: Callable[[], T], close: str) -> tuple[T, ...]:
        """Items with commas between, up to a closing mark, which is taken."""
        found: list[T] = []
        while not self.has(close):
            if found:
                self.expect(",")
            found.append(item())
        return tuple(found)

    def listed(self, item: Callable[[], T]) -> tuple[T, ...]:
        """Items with commas between, as far as they go."""
        if self.peek()[0] not in ("name", "string"):
            return ()
        found = [item()]
        while self.has(","):
            found.append(item())
        return tuple(found)

    def type(self) -> ValueType:
        word = self.take()[1]
        if word == "map":
            self.expect("(")
            key = dtype_named(self.take()[1])
            self.expect(",")
            element = self.type()
            self.expect(")")
            return MapType(key, element)
        if word in ("seq", "optional"):
            self.expect("(")
            element = self.type()
            self.expect(")")
            return SequenceType(element) if word == "seq" else OptionalType(element)
        self.expect("[")
        if self.has("*"):
            self.expect("]")
            return TensorType(dtype_named(word), None)
        return TensorType(dtype_named(word), self.several(self.dim, "]"))

    def dim(self) -> Dim:
        if self.has("?"):
            return None
        kind, text = self.take()
        return int(text) if kind == "number" else str(json.loads(text)) if kind == "string" else text

    def constant(self) -> Constant:
        """A type, `=`, and a literal or a key."""
        kind = self.type()
        if not isinstance(kind, TensorType):
            raise ValueError("a constant is a tensor")
        self.expect("=")
        if self.peek()[0] == "key":
            found = self.side[self.take()[1]]
            if not isinstance(found, Constant) or found.type != kind:
                raise ValueError(f"the side table does not have a {kind} there")
            return found
        items = self.several(self.take, "]") if self.has("[") else (self.take(),)
        return Constant(_array(items, kind))

    def attribute(self) -> Attribute:
        kind, text = self.peek()
        if self.has("["):
            return self.several(self.attribute, "]")
        if self.has("tensor"):
            return self.constant()
        if self.has("body"):
            self.expect("(")
            captures = self.several(self.name, ")")
            body = self.side[self.take()[1]]
            if not isinstance(body, bytes):
                raise ValueError("the side table has no body there")
            return Subgraph(body, captures)
        if self.has("bytes"):
            return bytes.fromhex(self.name())
        self.at += 1
        if kind == "string":
            return str(json.loads(text))
        if text.endswith("f") and text not in ("inf", "-inf"):
            return float(np.float32(text[:-1]))
        return int(text) if text.lstrip("+-").isdigit() else float(text)


def _array(items: tuple[tuple[str, str], ...], kind: TensorType) -> np.ndarray:
    texts = [text for _, text in items]
    if kind.dtype == STRING:
        flat = np.array([json.loads(text) for text in texts], dtype=object)
    elif kind.dtype.kind == "bool":
        flat = np.array([{"true": True, "false": False}[text] for text in texts], dtype=bool)
    elif kind.dtype.is_integer:
        integers = np.array([int(text) for text in texts], dtype=np.uint64 if kind.dtype.kind == "uint" else np.int64)
        flat = integers.astype(kind.dtype.numpy)
    else:
        wide = np.float64 if kind.dtype.name == "float64" else np.float32
        flat = np.array([wide(text) for text in texts], dtype=wide).astype(kind.dtype.numpy)
    return flat.reshape(kind.dims)


class _Reading:
    """What has been read so far."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.name, self.opset = "graph", 23
        self.opsets: list[tuple[str, int]] = []
        self.metadata: list[tuple[str, str]] = []
        self.inputs: list[str] = []
        self.outputs: tuple[str, ...] = ()
        self.nodes: list[Node] = []
        self.types: dict[str, ValueType] = {}
        self.constants: dict[str, Constant] = {}

    def graph(self) -> Graph:
        return Graph(
            inputs=tuple(self.inputs),
            outputs=self.outputs,
            nodes=tuple(self.nodes),
            types=self.types,
            constants=self.constants,
            name=self.name,
            opset=self.opset,
            opsets=tuple(self.opsets),
            metadata=tuple(self.metadata),
        )

    def line(self, line: _Line) -> None:
        first, second = line.peek(), line.tokens[1] if len(line.tokens) > 1 else ("end", "")
        # a value may be called `input`; then a node's line goes on with a type, an equals sign or a comma
        if first[0] == "name" and first[1] in _KEYWORDS and second[1] not in ("=", ",", ":"):
            line.take()
            self._statement(first[1], line)
        else:
            self._node(line)
        line.end()

    def _statement(self, word: str, line: _Line) -> None:
        if word == "graph":
            self.name = line.name()
            line.expect("opset")
            self.opset = line.integer()
        elif word == "opset":
            self.opsets.append((line.name(), line.integer()))
        elif word == "metadata":
            key = line.name()
            line.expect("=")
            self.metadata.append((key, line.name()))
        elif word == "return":
            self.outputs = line.listed(line.name)
        elif word == "constant":
            name = line.name()
            line.expect(":")
            self.constants[name] = line.constant()
            self.types[name] = self.constants[name].type
        else:
            name = self._typed(line)
            if word == "input":
                self.inputs.append(name)

    def _typed(self, line: _Line) -> str:
        name = line.name()
        if name and line.has(":"):
            self.types[name] = line.type()
        return name

    def _node(self, line: _Line) -> None:
        outputs = line.listed(lambda: self._typed(line))
        line.expect("=")
        op, domain = line.name(), ""
        if not line.has("("):
            domain, op = op, line.name()
            line.expect("(")
        inputs = line.several(line.name, ")")
        attributes: list[tuple[str, Attribute]] = []
        if line.has("{"):
            while not line.has("}"):
                if attributes:
                    line.expect(",")
                key = line.name()
                line.expect("=")
                attributes.append((key, line.attribute()))
        captured: tuple[str, ...] = ()
        if line.has("captures"):
            line.expect("(")
            captured = line.several(line.name, ")")
        name = line.name() if line.has("@") else ""
        origin = line.listed(line.name) if line.has("from") else ((name,) if name else ())
        self.nodes.append(Node(op, inputs, outputs, tuple(attributes), domain, name, origin, captured))
