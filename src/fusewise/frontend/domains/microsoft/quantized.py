"""What stands between products of 8-bit numbers: each is dequantised, computed in float32 and quantised again, in one kernel."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fusewise.frontend.domains.microsoft.norms import channels_first
from fusewise.frontend.domains.microsoft.quantisers import dequantized, quantized, requantized
from fusewise.frontend.domains.row import DomainAttribute, DomainCall, DomainRow, integer, integers, real, text
from fusewise.frontend.domains.writer import DomainValue, DomainWriter
from fusewise.ops.validity.rules import flag

__all__ = ["QUANTIZED", "channels_placed"]

OnFloats = Callable[[DomainWriter, DomainCall, DomainValue], DomainValue]
"""What is done to the dequantised operand."""


def _map(
    op: str, on_floats: OnFloats, operands: tuple[str, ...], *attributes: DomainAttribute, output: str = "Y"
) -> DomainRow:
    """An operator of one tensor, with its scale and zero point, and with those of the result."""

    def write(g: DomainWriter, call: DomainCall) -> DomainValue:
        x, scale, zero, to_scale, to_zero = call.row.operand_names
        wide = on_floats(g, call, dequantized(g, call[x], call[scale], call.get(zero)))
        return quantized(g, wide, call[to_scale], call.get(to_zero), call[x])

    flags = [one.name for one in attributes if one.name in ("channels_last", "keepdims", "count_include_pad")]
    return DomainRow(op, write, operands, attributes, (output,), "_, one, one, one, one", (flag(*flags),))


def _pair(op: str, of: str) -> DomainRow:
    """An elementwise operator of two tensors, `of` as ONNX calls it."""

    def write(g: DomainWriter, call: DomainCall) -> DomainValue:
        a, b = (dequantized(g, call[n], call[f"{n}_scale"], call.get(f"{n}_zero_point")) for n in "AB")
        return quantized(g, g.several(of, 1, a, b)[0], call["C_scale"], call.get("C_zero_point"), call["A"])

    names = tuple(name for n in "ABC" for name in (n, f"{n}_scale", f"{n}_zero_point?"))
    return DomainRow(op, write, names[:6] + names[7:], outputs=("C",), shapes="_, one, one, _, one, one, one, one")


def _softmax(g: DomainWriter, call: DomainCall, x: DomainValue) -> DomainValue:
    """Before opset 13 over all axes from `axis` on."""
    axis = call.attribute("axis")
    if call.attribute("opset") >= 13:
        return g.Softmax(x, axis=axis)
    return g.reshape(g.Softmax(g.flat(x, axis), axis=-1), g.sizes(x))


def channels_placed(g: DomainWriter, call: DomainCall, x: DomainValue, change: OnFloats) -> DomainValue:
    """`change`, which wants channels behind the samples, of what has them there or last."""
    if not call.attribute("channels_last"):
        return change(g, call, x)
    return channels_first(g, x, lambda turned: change(g, call, turned))


_WINDOW = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")


def _average_pool(g: DomainWriter, call: DomainCall, x: DomainValue) -> DomainValue:
    return g.AveragePool(x, **{name: call.attribute(name) for name in _WINDOW})


def _reduce_mean(g: DomainWriter, call: DomainCall, x: DomainValue) -> DomainValue:
    return g.ReduceMean(x, list(call.attribute("axes")), keepdims=call.attribute("keepdims"))


def _concat(g: DomainWriter, call: DomainCall) -> DomainValue:
    given = call.tail("inputs")
    if not given or len(given) % 3:
        raise call.invalid(
            f"it has {len(given)} inputs behind those of the result; each tensor comes with its scale and zero point"
        )
    parts = [
        requantized(g, (given[k], given[k + 1], given[k + 2]), call["Y_scale"], call["Y_zero_point"])
        for k in range(0, len(given), 3)
    ]
    return g.Concat(*parts, axis=call.attribute("axis"))


def _where(g: DomainWriter, call: DomainCall) -> DomainValue:
    def part(name: str, of: str) -> DomainValue:
        given = (call[name], call[f"{of}_scale"], call[f"{of}_zero_point"])
        return requantized(g, given, call["z_scale"], call["z_zero_point"])

    return g.Where(call["condition"], part("X", "x"), part("Y", "y"))


_X_TO_Y = ("X", "X_scale", "X_zero_point?", "Y_scale", "Y_zero_point?")

QUANTIZED: tuple[DomainRow, ...] = (
    _pair("QLinearAdd", "Add"),
    _pair("QLinearMul", "Mul"),
    _map("QLinearSigmoid", lambda g, call, x: g.Sigmoid(x), _X_TO_Y),
    _map(
        "QLinearLeakyRelu",
        lambda g, call, x: g.LeakyRelu(x, alpha=call.attribute("alpha")),
        _X_TO_Y,
        real("alpha", 0.01),
    ),
    _map(
        "QLinearSoftmax",
        _softmax,
        ("X", "X_scale", "x_zero_point?", "y_scale", "y_zero_point"),
        integer("opset"),
        integer("axis", -1),
    ),
    _map(
        "QLinearAveragePool",
        partial(channels_placed, change=_average_pool),
        ("X", "x_scale", "x_zero_point?", "y_scale", "y_zero_point?"),
        integer("ceil_mode", 0),
        integer("channels_last", 0),
        integer("count_include_pad", 0),
        integers("kernel_shape"),
        integers("pads", None),
        integers("strides", None),
        text("auto_pad", "NOTSET"),
    ),
    _map(
        "QLinearGlobalAveragePool",
        partial(channels_placed, change=lambda g, call, x: g.GlobalAveragePool(x)),
        ("X", "x_scale", "x_zero_point", "y_scale", "y_zero_point"),
        integer("channels_last", 0),
    ),
    _map(
        "QLinearReduceMean",
        _reduce_mean,
        ("data", "data_scale", "data_zero_point?", "reduced_scale", "reduced_zero_point?"),
        integers("axes"),
        integer("keepdims"),
        output="reduced",
    ),
    DomainRow(
        "QLinearConcat",
        _concat,
        operands=("Y_scale", "Y_zero_point", "inputs*"),
        attributes=(integer("axis"),),
        outputs=("Y",),
        shapes="one, one",
    ),
    DomainRow(
        "QLinearWhere",
        _where,
        operands=(
            *("condition", "X", "x_scale", "x_zero_point", "Y", "y_scale", "y_zero_point"),
            *("z_scale", "z_zero_point"),
        ),
        outputs=("Z",),
        shapes="_, _, one, one, _, one, one, one, one",
    ),
)
