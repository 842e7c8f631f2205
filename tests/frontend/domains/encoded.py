"""Small encoders and decoders as ONNX Runtime's searches hold them, with weights by chance: plain attention in two layers.

`first` says how an encoder begins a sequence: "caches" (it gives keys and values alone), or "logits" (it runs the decoder once).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

import numpy as np
import onnx
from onnx import helper, numpy_helper

VOCABULARY, HEADS, SIZE, LAYERS = 17, 2, 4, 2
WIDTH = HEADS * SIZE
FEATURES = 3
FLOAT, INT = onnx.TensorProto.FLOAT, onnx.TensorProto.INT32
PARTS = ("key", "value")


class _Nodes:
    """Nodes of one graph; a method of an operator's name gives the name of its result."""

    def __init__(self, seed: int, scale: float) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.stored: dict[str, np.ndarray] = {}
        self.scale = scale
        self.seed = seed
        self.names: Iterator[int] = count()

    def do(self, op: str, *operands: str | np.ndarray, to_: str = "", **attributes: object) -> str:
        names = [one if isinstance(one, str) else self.keep(one) for one in operands]
        made = to_ or f"t{next(self.names)}"
        self.nodes.append(helper.make_node(op, names, [made], **attributes))
        return made

    def keep(self, array: np.ndarray, name: str = "") -> str:
        name = name or f"c{next(self.names)}"
        self.stored[name] = array
        return name

    def weight(self, name: str, *shape: int) -> str:
        """The same in every graph of a seed."""
        rng = np.random.default_rng([self.seed, *name.encode()])
        return self.keep((rng.standard_normal(shape) * self.scale).astype(np.float32), name)

    def heads(self, x: str) -> str:
        parted = self.do("Reshape", x, np.array([0, 0, HEADS, SIZE]))
        return self.do("Transpose", parted, perm=[0, 2, 1, 3])

    def attend(self, query: str, keys: str, values: str, mask: str = "") -> str:
        scores = self.do("MatMul", query, self.do("Transpose", keys, perm=[0, 1, 3, 2]))
        if mask:
            hidden = self.do("Sub", self.do("Cast", mask, to=FLOAT), np.float32(1))
            hidden = self.do("Mul", hidden, np.float32(1e4))
            scores = self.do("Add", scores, self.do("Unsqueeze", hidden, np.array([1, 2])))
        mixed = self.do("MatMul", self.do("Softmax", scores, axis=-1), values)
        return self.do("Reshape", self.do("Transpose", mixed, perm=[0, 2, 1, 3]), np.array([0, 0, WIDTH]))

    def decode(self, tokens: str, mask: str, past: Sequence[str], cross: Sequence[str]) -> None:
        """Logits and the caches after `past`, which is empty where nothing was read."""
        x = self.do("Gather", self.weight("tokens", VOCABULARY, WIDTH), tokens)
        for k in range(LAYERS):
            query = self.heads(self.do("MatMul", x, self.weight(f"query{k}", WIDTH, WIDTH)))
            own = []
            for part, name in enumerate(PARTS):
                new = self.heads(self.do("MatMul", x, self.weight(f"{name}{k}", WIDTH, WIDTH)))
                old = [past[2 * k + part]] if past else []
                own.append(self.do("Concat", *old, new, to_=f"present_{name}_self_{k}", axis=2))
            x = self.do("Add", x, self.attend(query, *own))
            x = self.do("Add", x, self.attend(query, *cross[2 * k : 2 * k + 2], mask))
        self.do("MatMul", x, self.weight("head", WIDTH, VOCABULARY), to_="logits")

    def encode(self, x: str) -> None:
        self.do("Identity", x, to_="encoder_hidden_states")
        for k in range(LAYERS):
            for name in PARTS:
                made = self.do("MatMul", x, self.weight(f"cross_{name}{k}", WIDTH, WIDTH))
                self.do("Identity", self.heads(made), to_=f"present_{name}_cross_{k}")

    def graph(self, name: str, inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[str]) -> onnx.GraphProto:
        shapes: dict[str, list[int | str]] = {
            "logits": ["b", "n", VOCABULARY],
            "encoder_hidden_states": ["b", "s", WIDTH],
        }
        shapes |= {out: ["b", HEADS, "s", SIZE] for out in outputs if "_cross_" in out}
        ends = [value(out, FLOAT, shapes.get(out, ["b", HEADS, "t", SIZE])) for out in outputs]
        stored = [numpy_helper.from_array(array, key) for key, array in self.stored.items()]
        return helper.make_graph(self.nodes, name, inputs, ends, stored)


def value(name: str, kind: int, dims: Sequence[int | str]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, dims)


def caches(kind: str, place: str) -> list[str]:
    return [f"{kind}_{name}_{place}_{k}" for k in range(LAYERS) for name in PARTS]


def decoder(
    seed: int, scale: float = 0.3, *, mask: bool = True, hidden: bool = False, whole: bool = False
) -> onnx.GraphProto:
    """One that reads a token in each round, or all of them, of which it looks at the last."""
    g = _Nodes(seed, scale)
    tokens = g.do("Slice", "input_ids", np.array([-1]), np.array([2**31]), np.array([1])) if whole else "input_ids"
    g.decode(tokens, "encoder_attention_mask" if mask else "", caches("past", "self"), caches("past", "cross"))
    ports = [value("input_ids", INT, ["b", "n" if whole else 1])]
    ports += [value("encoder_attention_mask", INT, ["b", "s"])] if mask else []
    ports += [value("encoder_hidden_states", FLOAT, ["b", "s", WIDTH])] if hidden else []
    for place, length in (("self", "p"), ("cross", "s")):
        ports += [value(name, FLOAT, ["b", HEADS, length, SIZE]) for name in caches("past", place)]
    return g.graph("decoder", ports, ["logits", *caches("present", "self")])


def encoder(seed: int, first: str, scale: float = 0.3) -> onnx.GraphProto:
    """One that reads tokens."""
    g = _Nodes(seed, scale)
    g.encode(g.do("Gather", g.weight("words", VOCABULARY, WIDTH), "encoder_input_ids"))
    ports = [value(name, INT, ["b", "s"]) for name in ("encoder_input_ids", "encoder_attention_mask")]
    if first == "caches":
        return g.graph("encoder", ports, caches("present", "cross"))
    g.decode("decoder_input_ids", "encoder_attention_mask", (), caches("present", "cross"))
    ports.append(value("decoder_input_ids", INT, ["b", 1]))
    return g.graph("encoder", ports, _all_outputs())


def listener(seed: int, scale: float = 0.3) -> onnx.GraphProto:
    """An encoder of features [samples, features, frames], as Whisper's."""
    g = _Nodes(seed, scale)
    frames = g.do("Transpose", "encoder_input_ids", perm=[0, 2, 1])
    g.encode(g.do("MatMul", frames, g.weight("features", FEATURES, WIDTH)))
    g.decode("decoder_input_ids", "", (), caches("present", "cross"))
    ports = [value("encoder_input_ids", FLOAT, ["b", FEATURES, "s"]), value("decoder_input_ids", INT, ["b", "n"])]
    return g.graph("encoder", ports, _all_outputs())


def _all_outputs() -> list[str]:
    return ["logits", "encoder_hidden_states", *caches("present", "self"), *caches("present", "cross")]
