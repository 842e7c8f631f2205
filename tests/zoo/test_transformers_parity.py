"""The text models against the `transformers` package: our weights in its modules, the same answers out.

Each table of names turns a name there into ours by regular expressions, applied in order.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fusewise.ir.graph import Graph
from fusewise.zoo.catalogue import build

transformers = pytest.importorskip("transformers")
torch = pytest.importorskip("torch")
pytestmark = pytest.mark.slow

Names = tuple[tuple[str, str], ...]

EMBEDDINGS: Names = (
    (r"^(encoder|transformer)\.", ""),
    (r"(word|position|token_type)_embeddings", r"\1"),
    (r"LayerNorm", "norm"),
)
BERT: Names = (
    *EMBEDDINGS,
    (r"attention\.self", "attention"),
    (r"attention\.output\.norm", "attention.norm"),
    (r"\.dense", ""),
    (r"(layer\.\d+)\.output\.norm", r"\1.norm"),
)
DISTILBERT: Names = (
    *EMBEDDINGS,
    (r"q_lin", "query"),
    (r"k_lin", "key"),
    (r"v_lin", "value"),
    (r"out_lin", "output"),
    (r"sa_layer_norm", "attention.norm"),
    (r"output_layer_norm", "norm"),
    (r"ffn\.lin1", "intermediate"),
    (r"ffn\.lin2", "output"),
)
ALBERT: Names = (
    (r"encoder\.embedding_hidden_mapping_in", "embeddings.projection"),
    *EMBEDDINGS,
    (r"albert_layer_groups\.0\.albert_layers\.0", "layer"),
    (r"attention\.dense", "attention.output"),
    (r"full_layer_layer_norm", "norm"),
    (r"ffn_output", "output"),
    (r"\.ffn\.", ".intermediate."),
)
MOBILEBERT: Names = (
    *EMBEDDINGS,
    (r"embedding_transformation", "projection"),
    (r"\.dense", ""),
    (r"attention\.self", "attention"),
    (r"attention\.output\.norm", "attention.norm"),
    (r"output\.bottleneck", "bottleneck.output"),
    (r"(layer\.\d+)\.(intermediate|output)\.", r"\1.ffn.3.\2."),
    (r"(ffn\.\d)\.output\.norm", r"\1.norm"),
)
GPT2: Names = ((r"^transformer\.", ""), (r"lm_head", "wte"))


def _bert() -> Any:
    return transformers.BertModel(transformers.BertConfig())


def _tinybert() -> Any:
    config = transformers.BertConfig(hidden_size=312, num_hidden_layers=4, intermediate_size=1200)
    return transformers.BertModel(config)


def _distilbert() -> Any:
    return transformers.DistilBertModel(transformers.DistilBertConfig())


def _albert() -> Any:
    config = transformers.AlbertConfig(
        hidden_size=768, num_attention_heads=12, intermediate_size=3072, hidden_act="gelu_new"
    )
    return transformers.AlbertModel(config)


def _mobilebert() -> Any:
    return transformers.MobileBertModel(transformers.MobileBertConfig(classifier_activation=False))


def _gpt2() -> Any:
    return transformers.GPT2LMHeadModel(transformers.GPT2Config())


def _load(module: Any, graph: Graph, names: Names) -> None:
    """Fill every weight of `module` from the graph, [in, out] matrices turned to the module's [out, in]."""
    moved = {}
    for theirs, present in module.state_dict().items():
        ours = theirs
        for pattern, replacement in names:
            ours = re.sub(pattern, replacement, ours)
        array = graph.constants[ours].array
        reader = graph.nodes[graph.users[ours][0]]
        if reader.op == "MatMul":
            array = array.T
        assert array.shape == tuple(present.shape), (theirs, ours)
        moved[theirs] = torch.tensor(np.ascontiguousarray(array))
    module.load_state_dict(moved)
    module.eval()


@pytest.mark.parametrize(
    "name, make, names",
    [
        ("bert_base", _bert, BERT),
        ("tinybert", _tinybert, BERT),
        ("distilbert", _distilbert, DISTILBERT),
        ("albert", _albert, ALBERT),
        ("mobilebert", _mobilebert, MOBILEBERT),
        ("gpt2", _gpt2, GPT2),
    ],
)
def test_answers_are_those_of_transformers(
    name: str,
    make: Callable[[], Any],
    names: Names,
    run_reference: Callable[..., list[list[np.ndarray]]],
    feeds_of: Callable[[Graph, int], dict[str, np.ndarray]],
) -> None:
    graph, module = build(name), make()
    _load(module, graph, names)
    feeds = feeds_of(graph, 0)
    (ours,) = run_reference(graph, feeds)
    with torch.no_grad():
        theirs = module(**{key: torch.tensor(value) for key, value in feeds.items()})
    for output, found in zip(graph.outputs, ours, strict=True):
        expected = theirs[output].numpy()
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
