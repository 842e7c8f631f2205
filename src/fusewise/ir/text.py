"""The printed form of a graph, one line per node; `fusewise.ir.parse` reads it back.

    graph "tiny" opset 23
    input x: float32[1,8]
    constant two: float32[] = 2.0
    constant w: float32[8,64] = #5f0c...
    y: float32[1,64] = MatMul(x, w) @dense
    z: float32[1,64] = Mul(y, two) @scale from scale, gain
    return z

A name stands bare when it looks like one, else as a JSON string; `_` is an absent operand or output. Attributes follow in
braces: `{axis=-1, perm=[0, 1], mode="linear"}`. A float that is a float32 in disguise ends in `f`. Small constants stand as
flat lists in row-major order; large ones and bodies of control flow as `#digest`, the key into `side_table(graph)`.
`@name` is the node's name, `from` its provenance when that is not just its own name.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator

import numpy as np

from fusewise.ir.dtypes import STRING, DType
from fusewise.ir.graph import Attribute, Constant, Graph, Node, Subgraph
from fusewise.ir.types import MapType, ValueType

__all__ = ["LONGEST_LITERAL", "attribute_text", "body_digest", "print_graph", "print_node", "side_table"]

LONGEST_LITERAL = 8
"""Constants with more elements are printed as their digest."""

_BARE = re.compile(r"(?!(?:_|inf|nan)$)[A-Za-z_/][\w./-]*(?:::?[\w./-]+)*", re.ASCII)
_BARE_DIM = re.compile(r"(?!(?:inf|nan)$)[A-Za-z_]\w*", re.ASCII)


def print_graph(graph: Graph, *, digests: bool = True) -> str:
    """The whole graph as text that ends in a newline.

    With `digests` false large constants stand as a bare `#`, which reads well in goldens but does not parse back.
    """
    lines = [f"graph {json.dumps(graph.name)} opset {graph.opset}"]
    lines += [f"opset {json.dumps(domain)} {version}" for domain, version in graph.opsets]
    lines += [f"metadata {json.dumps(key)} = {json.dumps(value)}" for key, value in graph.metadata]
    lines += [f"input {_typed(graph, name)}" for name in graph.inputs]
    for name, constant in graph.constants.items():
        lines.append(f"constant {_name(name)}: {_constant(constant, digests)}")
    stray = set(graph.types) - set(graph.inputs) - set(graph.constants)
    lines += [f"value {_typed(graph, name)}" for name in sorted(stray.difference(graph.producer))]
    lines += [print_node(graph, node, digests=digests) for node in graph.nodes]
    lines.append(" ".join(["return", ", ".join(map(_name, graph.outputs))]).strip())
    return "\n".join(lines) + "\n"


def print_node(graph: Graph, node: Node, *, digests: bool = True) -> str:
    """One node as a line without its end, with the types `graph` has for its outputs."""
    left = ", ".join(_typed(graph, name) if name else "_" for name in node.outputs)
    domain = f"{_name(node.domain)} " if node.domain else ""
    line = f"{left} = {domain}{_name(node.op)}({', '.join(_name(v) if v else '_' for v in node.inputs)})"
    if node.attributes:
        line += f" {{{', '.join(f'{_name(k)}={attribute_text(v, digests)}' for k, v in node.attributes)}}}"
    if node.captured:
        line += f" captures ({', '.join(_name(v) if v else '_' for v in node.captured)})"
    if node.name:
        line += f" @{_name(node.name)}"
    if node.origin != ((node.name,) if node.name else ()):
        line += f" from {', '.join(map(_name, node.origin))}".rstrip()
    return line


def side_table(graph: Graph) -> dict[str, Constant | bytes]:
    """What the text only names by digest: constants and bodies, those in attributes too."""
    found: dict[str, Constant | bytes] = {}
    for constant in graph.constants.values():
        _enter(constant, found)
    for node in graph.nodes:
        for _, value in node.attributes:
            for part in _parts(value):
                _enter(part, found)
    return found


def body_digest(body: bytes) -> str:
    """The key of a body of control flow in the side table."""
    return hashlib.blake2b(body, digest_size=16).hexdigest()


def _parts(value: Attribute) -> Iterator[Attribute]:
    if isinstance(value, tuple):
        for item in value:
            yield from _parts(item)
    else:
        yield value


def _enter(value: Attribute, found: dict[str, Constant | bytes]) -> None:
    if isinstance(value, Subgraph):
        found[body_digest(value.body)] = value.body
    elif isinstance(value, Constant) and _literal(value) is None:
        found[value.digest] = value


def _name(name: str) -> str:
    return name if _BARE.fullmatch(name) else json.dumps(name)


def _typed(graph: Graph, name: str) -> str:
    kind = graph.types.get(name)
    return _name(name) if kind is None else f"{_name(name)}: {_type(kind)}"


def _type(kind: ValueType) -> str:
    """Like `str(kind)`, with the names of dimensions that do not look like names quoted."""
    if isinstance(kind, MapType):
        return f"map({kind.key.name},{_type(kind.element)})"
    if hasattr(kind, "element"):
        word = "seq" if type(kind).__name__ == "SequenceType" else "optional"
        return f"{word}({_type(kind.element)})"
    if kind.shape is None:
        return str(kind)
    dims = (d if isinstance(d, str) and not _BARE_DIM.fullmatch(d) else None for d in kind.shape)
    shown = (
        json.dumps(odd) if odd is not None else "?" if d is None else str(d)
        for odd, d in zip(dims, kind.shape, strict=True)
    )
    return f"{kind.dtype.name}[{','.join(shown)}]"


def _constant(constant: Constant, digests: bool) -> str:
    literal = _literal(constant)
    if literal is None:
        literal = f"#{constant.digest}" if digests else "#"
    return f"{constant.type} = {literal}"


def _literal(constant: Constant) -> str | None:
    """The contents as text; None when that is too long, or would not give the same bits back."""
    array = constant.array
    if array.size > LONGEST_LITERAL:
        return None
    items = [_element(item, constant.dtype) for item in array.reshape(-1)]
    if any(item is None for item in items):
        return None
    text = ", ".join(item for item in items if item is not None)
    return text if array.ndim == 0 else f"[{text}]"


def _element(item: object, dtype: DType) -> str | None:
    if dtype == STRING:
        return json.dumps(item) if isinstance(item, str) else None
    if dtype.kind == "bool":
        return "true" if item else "false"
    if dtype.is_integer:
        return str(int(item))  # type: ignore[call-overload]
    if not dtype.is_float:
        return None
    wide = item if dtype.name == "float64" else np.float32(item)  # type: ignore[arg-type]
    text = str(wide)
    back = np.array(text, dtype=np.asarray(wide).dtype).astype(dtype.numpy)
    return text if back.tobytes() == np.asarray(item).tobytes() else None


def attribute_text(value: Attribute, digests: bool) -> str:
    """The value of an attribute."""
    if isinstance(value, Constant):
        return f"tensor {_constant(value, digests)}"
    if isinstance(value, Subgraph):
        return f"body({', '.join(map(_name, value.captures))}) #{body_digest(value.body) if digests else ''}"
    if isinstance(value, tuple):
        return f"[{', '.join(attribute_text(item, digests) for item in value)}]"
    if isinstance(value, bytes):
        return f'bytes "{value.hex()}"'
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, float):
        with np.errstate(over="ignore"):
            short = str(np.float32(value))
        # a float attribute comes from a file as float32; that form is the readable one
        return f"{short}f" if float(np.float32(short)) == value and short != repr(value) else repr(value)
    return str(int(value))
