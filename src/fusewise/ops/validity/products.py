"""What matrix products, Einsum, attention, recurrences and quantisation ask of their operands."""

from __future__ import annotations

from fusewise.ir.types import Dim
from fusewise.ops.validity.rules import between, counted, element_type, flag, given, needs, one_of
from fusewise.ops.validity.use import Rule, Use, ValidityRow, alike, shown

__all__ = ["PRODUCTS"]


def _matrices(a: int, b: int) -> Rule:
    """Two stacks of matrices that can be multiplied, as `numpy.matmul` takes them."""

    def rule(use: Use) -> str:
        left, right = use.shape(a), use.shape(b)
        if left is None or right is None:
            return ""
        if not left or not right:
            return f"{use.operand(a if not left else b)} has no dimensions; a matrix product takes one or more"
        inner, other = left[-1], right[-2:][0]
        if isinstance(inner, int) and isinstance(other, int) and inner != other:
            return (
                f"{use.operand(a)} has the shape {shown(left)} and {use.operand(b)} the shape {shown(right)}; {inner} columns "
                f"cannot be multiplied by {other} rows"
            )
        for x, y in zip(reversed(left[:-2]), reversed(right[:-2]), strict=False):
            if isinstance(x, int) and isinstance(y, int) and x != y and 1 not in (x, y):
                return f"{use.operand(a)} has the shape {shown(left)}, which does not broadcast to {shown(right)} of input {b}"
        return ""

    return rule


def _rows_of(i: int, a: int) -> Rule:
    """Operand `i` is one element, or one for each row of matrix `a`."""
    return _each_of(i, a, position=-2)


def _columns_of(i: int, b: int) -> Rule:
    """Operand `i` is one element, or one for each column of matrix `b`."""
    return _each_of(i, b, position=-1)


def _each_of(i: int, of: int, position: int) -> Rule:
    """One element, as many as there are rows (-2) or columns (-1), or, for stacks, a tensor with one in place of the others."""

    def rule(use: Use) -> str:
        shape, data = use.shape(i), use.shape(of)
        if shape is None or data is None or shape in ((), (1,)) or len(data) < -position:
            return ""
        along = data[position]
        if len(shape) == 1:
            wanted: tuple[Dim, ...] = (along,)
        else:
            wanted = (*data[:-2], along, 1) if position == -2 else (*data[:-2], 1, along)
        if alike(shape, wanted):
            return ""
        what = "row" if position == -2 else "column"
        return (
            f"{use.operand(i)} has the shape {shown(shape)}; it must have one element, or one for each {what} of "
            f"{use.operand(of)}, whose shape is {shown(data)}"
        )

    return rule


def _same_shape(i: int, j: int) -> Rule:
    """Two operands have one shape; a single element may have a dimension or not."""

    def rule(use: Use) -> str:
        first, second = use.shape(i), use.shape(j)
        if first is None or second is None or (use.count(i) == use.count(j) == 1):
            return ""
        if alike(first, second):
            return ""
        return f"{use.operand(j)} has the shape {shown(second)}; it must be that of {use.operand(i)}, {shown(first)}"

    return rule


def _gemm(use: Use) -> str:
    a = "K M" if use.attribute("transA") else "M K"
    b = "N K" if use.attribute("transB") else "K N"
    return f"{a}, {b}, one | N | 1 N | M 1 | M N | 1 1"


def _granularity(use: Use) -> str:
    """A scale is one for all, one for each position along the axis, or one for each block along it."""
    data, scale = use.shape(0), use.shape(1)
    size, along = use.attribute("block_size"), use.attribute("axis")
    if data is None or scale is None or scale in ((), (1,)):
        return ""
    if not data or not -len(data) <= along < len(data):
        if len(scale) == 1 and len(data) == 1:
            along = 0  # nothing else it could be
        else:
            return f"its attribute axis is {along}, which is no axis of {use.operand(0)} of rank {len(data)}"
    along %= len(data)
    wanted = list(data)
    if size:
        extent = data[along]
        wanted[along] = -(-extent // size) if isinstance(extent, int) else None
    else:
        wanted = [data[along]]
    if alike(scale, wanted):
        return ""
    kind = (
        f"one element for each block of {size} along axis {along}" if size else f"one element for each of axis {along}"
    )
    return (
        f"{use.operand(1)} has the shape {shown(scale)}; it must have one element, or {kind} of {use.operand(0)}: "
        f"{shown(wanted)}"
    )


_QUANTISATION: tuple[Rule, ...] = (
    between("block_size", 0),
    flag("saturate"),
    element_type("output_dtype"),
    element_type("precision", floats=True),
    _granularity,
    _same_shape(1, 2),
)


def _letters(use: Use) -> str:
    """Einsum: as many terms as operands, as many letters as dimensions, equal extents for equal letters."""
    equation = use.attribute("equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    fault = next((fault for term in (*terms, right) if (fault := _term_fault(term))), "")
    if fault:
        return f"its equation {shown(equation)} {fault}"
    if len(terms) != len(use.node.inputs):
        return f"its equation {shown(equation)} has {len(terms)} terms for {len(use.node.inputs)} operands"
    if arrow and not set(right.replace("...", "")) <= set(left):
        return f"its equation {shown(equation)} gives letters that no operand has"
    if len(set(right.replace("...", ""))) != len(right.replace("...", "")):
        return f"its equation {shown(equation)} gives a letter twice"
    extents: dict[str, int] = {}
    for i, term in enumerate(terms):
        fault = _term_misfit(use, i, term, extents)
        if fault:
            return fault
    return ""


def _term_fault(term: str) -> str:
    plain = term.replace("...", "", 1)
    return "" if plain == "" or (plain.isascii() and plain.isalpha()) else f"has the term {shown(term)}, which is none"


def _term_misfit(use: Use, i: int, term: str, extents: dict[str, int]) -> str:
    """Does one operand fit its term? Notes the extents of its letters."""
    shape = use.shape(i)
    if shape is None:
        return ""
    before, dots, after = term.partition("...")
    if len(shape) != len(before) if not dots else len(shape) < len(before) + len(after):
        return f"{use.operand(i)} has the shape {shown(shape)}; its term in the equation is {term!r}"
    pairs = [*zip(before, shape, strict=False)]
    if after:
        pairs += zip(after, shape[-len(after) :], strict=True)
    own: dict[str, int] = {}
    for letter, extent in pairs:
        if not isinstance(extent, int):
            continue
        if own.setdefault(letter, extent) != extent:
            return f"{use.operand(i)} has the shape {shown(shape)}; all its extents for letter {letter!r} must be equal"
        known = extents.get(letter, 1)
        if known != extent and 1 not in (known, extent):
            return f"{use.operand(i)} has the shape {shown(shape)}; for letter {letter!r} it must have {known}, as those before"
        extents[letter] = max(known, extent) if extent else extent
    return ""


def _directions(use: Use) -> int:
    return 2 if use.attribute("direction") == "bidirectional" else 1


_ACTIVATIONS = (
    *("Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu"),
    *("Softsign", "Softplus"),
)


def _known_activations(use: Use) -> str:
    """The names are compared without regard to case, as ONNX Runtime does."""
    names = {name.lower() for name in _ACTIVATIONS}
    unknown = [name for name in use.node.attribute("activations", ()) if str(name).lower() not in names]
    return (
        f"its attribute activations has {unknown[0]!r}; it must be one of {', '.join(_ACTIVATIONS)}" if unknown else ""
    )


def _recurrence(op: str, gates: int, functions: int, states: int, *rules: Rule) -> ValidityRow:
    """LSTM, GRU or RNN, with so many gates, activation functions and states; an LSTM's peepholes come last."""

    def shapes(use: Use) -> str:
        data, state = ("N T I", "N D hidden") if use.attribute("layout") else ("T N I", "D N hidden")
        operands = [
            data,
            f"D {gates}*hidden I",
            f"D {gates}*hidden hidden",
            f"D {2 * gates}*hidden",
            "N",
            *[state] * states,
        ]
        return ", ".join([*operands, "D 3*hidden"]).replace("hidden", "H")

    def function_count(use: Use) -> int | None:
        return functions * _directions(use) if use.node.attribute("activations") is not None else None

    every = (
        one_of("direction", "forward", "reverse", "bidirectional"),
        flag("layout"),
        between("hidden_size", 1),
        between("clip", 0),
        counted("activations", function_count, "one for each function of each direction"),
        _known_activations,
        *rules,
    )
    return ValidityRow(op, shapes, every, (("D", _directions), ("H", given("hidden_size"))))


def _attention(use: Use) -> str:
    """Three or four dimensions, all alike; the past has as many heads as keys and values."""
    if use.rank(0) == 3:
        heads, keyed = use.attribute("q_num_heads"), use.attribute("kv_num_heads")
        if heads is None or keyed is None:
            return "N Q q_num_heads*E, N L kv_num_heads*E, N L kv_num_heads*F"
        return f"N Q {heads}*E, N L {keyed}*E, N L {keyed}*F, _, N {keyed} P E, N {keyed} P F"
    return "N G Q E, N H L E, N H L F, _, N H P E, N H P F"


def _heads(use: Use) -> str:
    """Every head of keys and values serves a whole number of those of queries."""
    if use.rank(0) == 3:
        heads, keyed = use.attribute("q_num_heads"), use.attribute("kv_num_heads")
        if heads is None or keyed is None:
            return "its operands have three dimensions, so its attributes q_num_heads and kv_num_heads must be given"
        for i, count in enumerate((heads, keyed, keyed)):
            width = use.extent(i, 2)
            if width is not None and width % count:
                return f"{use.operand(i)} has a width of {width}, which is no multiple of its {count} heads"
    else:
        heads, keyed = use.extent(0, 1), use.extent(1, 1)
        for name, i, found in (("q_num_heads", 0, heads), ("kv_num_heads", 1, keyed)):
            asked = use.attribute(name)
            if None not in (asked, found) and asked != found:
                return f"its attribute {name} is {asked}, but {use.operand(i)} has {found} heads"
    if heads is None or keyed is None or (keyed > 0 and heads % keyed == 0) or heads == keyed:
        return ""
    return f"it has {heads} heads of queries, which is no multiple of the {keyed} heads of keys"


def _mask(use: Use) -> str:
    """The mask broadcasts to batch, heads, queries and keys, those of the past included."""
    mask, query, key = use.shape(3), use.shape(0), use.shape(1)
    if mask is None or query is None or key is None or len(query) != len(key):
        return ""
    if len(mask) > 4:
        return f"{use.operand(3)} has the shape {shown(mask)}; it must broadcast to four dimensions"
    heads = use.attribute("q_num_heads") if len(query) == 3 else query[1]
    before = use.extent(4, 2) if use.has(4) else 0
    now = key[-2]
    total = now + before if isinstance(now, int) and before is not None else None
    wanted = (query[0], heads, query[-2], total)[4 - len(mask) :]
    for k, (found, want) in enumerate(zip(mask, wanted, strict=True)):
        if not isinstance(found, int) or not isinstance(want, int) or found in (1, want):
            continue
        if k == len(mask) - 1 and found < want and use.opset >= 24:
            continue  # since opset 24 a shorter mask leaves the keys beyond it out
        return f"{use.operand(3)} has the shape {shown(mask)}; it must broadcast to {shown(wanted)}"
    return ""


def _rotary(use: Use) -> str:
    """The tables have half as many columns as elements of a head are rotated."""
    heads = use.attribute("num_heads") or 0
    width = use.extent(0, -1)
    if use.rank(0) == 3:
        if heads < 1:
            return "its operand has three dimensions, so its attribute num_heads must be given"
        if width is not None and width % heads:
            return f"{use.operand(0)} has a width of {width}, which is no multiple of its {heads} heads"
        width = None if width is None else width // heads
    turned = use.attribute("rotary_embedding_dim") or width
    if turned is None:
        return ""
    if turned % 2 or (width is not None and turned > width):
        return f"it rotates {turned} elements of each head; there must be an even number of them, {width} or fewer"
    found = [use.extent(i, -1) for i in (1, 2)]
    for i, columns in zip((1, 2), found, strict=True):
        if columns is not None and columns != turned // 2:
            return f"{use.operand(i)} has {columns} columns; it must have {turned // 2}, half of what is rotated"
    return ""


def _rotary_shapes(use: Use) -> str:
    data = "N . T ." if use.rank(0) == 4 else "N T ."
    return f"{data}, P W, P W, N T" if use.has(3) else f"{data}, N T W, N T W"


PRODUCTS: tuple[ValidityRow, ...] = (
    ValidityRow("MatMul", rules=(_matrices(0, 1),)),
    ValidityRow("MatMulInteger", rules=(_matrices(0, 1), _rows_of(2, 0), _columns_of(3, 1))),
    ValidityRow(
        "QLinearMatMul",
        "_, _, _, _, _, _, one, one",
        (
            *(_matrices(0, 3), _rows_of(1, 0), _rows_of(2, 0), _columns_of(4, 3), _columns_of(5, 3)),
            *(_same_shape(1, 2), _same_shape(4, 5)),
        ),
    ),
    ValidityRow("Gemm", _gemm, (flag("transA", "transB"),)),
    ValidityRow("Einsum", rules=(_letters,)),
    ValidityRow("QuantizeLinear", rules=_QUANTISATION),
    ValidityRow("DequantizeLinear", rules=_QUANTISATION),
    _recurrence("LSTM", 4, 3, 2, flag("input_forget")),
    _recurrence("GRU", 3, 2, 1),
    _recurrence("RNN", 1, 1, 1),
    ValidityRow(
        "Attention",
        _attention,
        (
            flag("is_causal"),
            between("q_num_heads", 1),
            between("kv_num_heads", 1),
            one_of("qk_matmul_output_mode", 0, 1, 2, 3),
            element_type("softmax_precision", floats=True),
            needs(lambda use: use.has(4) == use.has(5), "past_key and past_value must be given together"),
            needs(lambda use: use.rank(0) in (None, 3, 4), "its operands must have three or four dimensions"),
            _heads,
            _mask,
        ),
    ),
    ValidityRow(
        "RotaryEmbedding",
        _rotary_shapes,
        (
            flag("interleaved"),
            between("rotary_embedding_dim", 0),
            between("num_heads", 0),
            needs(lambda use: use.rank(0) in (None, 3, 4), "its operand X must have three or four dimensions"),
            _rotary,
        ),
    ),
)
