"""Networks of the substitution papers that are no models of the zoo: SqueezeNet with bypasses, TASO's block of products, and
MetaFlow's module.

F. Iandola et al., "SqueezeNet", arXiv 1602.07360, figure 2: version 1.0 with simple and with complex bypass. Z. Jia et al., "TASO",
SOSP 2019: eight layers of attention without softmax, normalisation, residual or feed-forward part, called BERT there. As in
TASO's program the last product of a layer reads the layer's input; what attention gives is an output of the network. Z. Jia et
al., "Optimizing DNN Computation with Relaxed Graph Substitutions", SysML 2019, figure 1: a module of a residual network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from fusewise.ir.graph import Graph
from fusewise.zoo.activations import activate
from fusewise.zoo.layers import ConvWindow, add, concat, conv, flatten, global_average, max_pool
from fusewise.zoo.net import Net, finish, start, weight

__all__ = ["NETWORKS", "built", "resnet_module"]

_FIRES = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))
_POOLED_AFTER = (2, 6)  # the third and the seventh fire module
_TOKENS, _WIDTH, _HEADS, _LAYERS = 64, 1024, 16, 8


def _conv_relu(net: Net, x: str, name: str, channels: int, kernel: int, stride: int = 1) -> str:
    padding = 0 if stride == 2 else None
    return activate(net, conv(net, x, name, channels, ConvWindow(kernel, stride=stride, padding=padding)), "relu")


def _squeezenet(net: Net, complex_bypass: bool) -> Graph:
    x = _conv_relu(net, net.builder.input("x", (1, 3, 224, 224)), "conv1", 96, 7, stride=2)
    x = max_pool(net, x, 3, stride=2)
    for k, (squeezed, branch) in enumerate(_FIRES):
        narrow = _conv_relu(net, x, f"fire{k + 2}.squeeze", squeezed, 1)
        made = concat(
            net,
            _conv_relu(net, narrow, f"fire{k + 2}.expand1x1", branch, 1),
            _conv_relu(net, narrow, f"fire{k + 2}.expand3x3", branch, 3),
        )
        if k % 2:
            made = add(net, made, x)
        elif complex_bypass:
            made = add(net, made, conv(net, x, f"fire{k + 2}.bypass", 2 * branch, 1))
        x = max_pool(net, made, 3, stride=2) if k in _POOLED_AFTER else made
    x = _conv_relu(net, x, "conv10", 1000, 1)
    return finish(net, logits=flatten(net, global_average(net, x)))


def _simple(net: Net) -> Graph:
    return _squeezenet(net, complex_bypass=False)


def _complex(net: Net) -> Graph:
    return _squeezenet(net, complex_bypass=True)


def _block(net: Net) -> Graph:
    x = activate(net, net.builder.input("x", (_TOKENS, _WIDTH)), "relu")
    outputs: dict[str, str] = {}
    for layer in range(_LAYERS):
        query, key, value = (_product(net, x, f"{layer}.{name}") for name in ("query", "key", "value"))
        scores = net.op("MatMul", _heads(net, query, (1, 0, 2)), _heads(net, key, (1, 2, 0)))
        mixed = net.op("Transpose", net.op("MatMul", scores, _heads(net, value, (1, 0, 2))), perm=(1, 0, 2))
        outputs[f"attention_{layer}"] = net.op("Reshape", mixed, net.constant([_TOKENS, _WIDTH], "shape"))
        x = _product(net, x, f"{layer}.output")
    return finish(net, **outputs, y=x)


def _product(net: Net, x: str, name: str) -> str:
    return net.op("MatMul", x, weight(net, f"{name}.weight", (_WIDTH, _WIDTH), 1 / _WIDTH**0.5))


def _heads(net: Net, x: str, order: tuple[int, ...]) -> str:
    parts = net.constant([_TOKENS, _HEADS, _WIDTH // _HEADS], "shape")
    return net.op("Transpose", net.op("Reshape", x, parts), perm=order)


def _module(net: Net, channels: int = 256, size: int = 14) -> Graph:
    x = net.builder.input("x", (1, channels, size, size))
    second = conv(net, conv(net, x, "first", channels, 3), "second", channels, 3)
    return finish(net, y=activate(net, add(net, second, conv(net, x, "beside", channels, 1)), "relu"))


def resnet_module(channels: int, size: int) -> Graph:
    """Two 3x3 convolutions in a row beside a 1x1, added and rectified."""
    return _module(start("resnet_module", seed=0, decomposed=False), channels, size)


NETWORKS: Mapping[str, Callable[[Net], Graph]] = MappingProxyType(
    {
        "squeezenet_simple_bypass": _simple,
        "squeezenet_complex_bypass": _complex,
        "taso_bert": _block,
        "resnet_module": _module,
    }
)


def built(name: str) -> Graph:
    """The network called `name`, its weights random and always the same."""
    return NETWORKS[name](start(name, seed=0, decomposed=False))
