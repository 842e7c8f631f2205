"""Writes the program of a kernel as LLVM IR text: names, labels and phis for what loops and conditions carry.

Text is several times faster to produce than an object tree of LLVM's, and knows every type of it. Nodes that LLVM has no word for
are expanded on the way (`llvm.expand`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from fusewise.codegen.llvm.expand import Expansion
from fusewise.codegen.nest.build import Function, Module
from fusewise.codegen.nest.spelling import element_bytes, literal, overload, size_name
from fusewise.codegen.nest.tree import (
    Block,
    Composite,
    For,
    Int,
    NestNode,
    Operation,
    Repeat,
    Stage,
    Table,
    Value,
    When,
)
from fusewise.codegen.target import InstructionSet

__all__ = ["llvm_text"]

_FLAGS = {"ctlz": ("i1",), "cttz": ("i1",), "abs": ("i1",)}
"""Operands that some intrinsics have beside their own, always false."""

_METADATA = {
    "!0": "!0 = distinct !{!0, !1}",
    "!1": '!1 = !{!"llvm.loop.unroll.disable"}',
    "!2": '!2 = !{!"branch_weights", i32 1, i32 1000}',
}


def llvm_text(module: Module, instructions: InstructionSet | None = None) -> str:
    """The whole module as LLVM assembly. The instructions are needed where reductions or stores are to be written. A checked build
    looks at the program before."""
    if instructions is not None and instructions.sanitize:
        from fusewise.codegen.nest.verify import verify  # which other builds do without

        verify(module)
    whole = _Text(Expansion(module, instructions))
    functions = [whole.function(function) for function in whole.expansion.functions()]
    tables = [_table(table) for table in whole.expansion.tables()]
    metadata = [_METADATA[key] for key in sorted(whole.metadata)]
    return "\n".join([*tables, *sorted(whole.declarations.values()), *functions, *metadata]) + "\n"


def _table(table: Table) -> str:
    name, element, values = table
    start = f"@{name} = private unnamed_addr constant [{len(values)} x {element}]"
    if isinstance(values, bytes):  # LLVM reads bytes many times as fast as numbers
        contents = 'c"\\' + values.hex("\\") + '"' if any(values) else "zeroinitializer"
    else:
        contents = f"[{', '.join(f'{element} {literal(v, element)}' for v in values)}]"
    return f"{start} {contents}, align 64"


def _loaded(at: Value, count: int) -> Iterator[str]:
    """The sizes that a function is given as numbers, which lie side by side."""
    for number in range(count):
        name = size_name(number)
        yield f"  {name}.at = getelementptr inbounds i64, {at}, i64 {number}"
        yield f"  {name} = load i64, ptr {name}.at, align 8"


class _Text:
    """A module being written."""

    def __init__(self, expansion: Expansion) -> None:
        self.expansion = expansion
        self.declarations: dict[str, str] = {}
        self.metadata: set[str] = set()

    def function(self, function: Function) -> str:
        body = _Body(self, function)
        body.block(function.body)
        signature = ", ".join(f"{kind} %a{k}" for k, kind in enumerate(function.kinds))
        linkage = f"{function.linkage} " if function.linkage else ""
        sizes = () if function.sizes_at is None else _loaded(function.sizes_at, len(function.module.sizes))
        lines = "\n".join(("entry:", *sizes, *body.entry, *body.lines))
        return f"define {linkage}{function.result} @{function.name}({signature}) {function.attributes} {{\n{lines}\n}}"

    def declare(self, name: str, result: str, arguments: Sequence[str]) -> None:
        """Make an external function or intrinsic known."""
        self.declarations.setdefault(name, f"declare {result} @{name}({', '.join(arguments)})")


class _Body:
    """A function being written. `names` are those that its values have in the text."""

    def __init__(self, text: _Text, function: Function) -> None:
        self.text = text
        self.function = function
        self.lines: list[str] = []
        self.entry: list[str] = []
        self.names: dict[str, str] = {}
        self.next = 0
        self.label = "entry"

    def block(self, nodes: Block) -> None:
        names, lines, writers = self.names, self.lines, _WRITERS
        for node in nodes:
            if type(node) is not Operation:
                self.control(node)
                continue
            opcode, result, operands, _ = node
            writer = writers.get(opcode)
            if writer is not None:
                writer(self, node)
            elif len(operands) == 2 and result is not None and not opcode.startswith("llvm."):
                first, second = operands  # most operations are such, so they are written here
                a, b = first.text, second.text
                self.next += 1
                name = names[result.text] = f"%v{self.next}"
                lines.append(f"  {name} = {opcode} {first.type} {names.get(a, a)}, {names.get(b, b)}")
            else:
                _plain(self, node)

    def control(self, node: NestNode) -> None:
        if isinstance(node, For):
            self.loop(node)
        elif isinstance(node, When):
            self.when(node)
        elif isinstance(node, Repeat):
            self.repeat(node)
        else:
            assert isinstance(node, Stage | Composite)
            self.block(self.text.expansion.expanded(node, self.function))

    # --- names ----------------------------------------------------------------------------------------------------

    def of(self, value: Value) -> str:
        """A value without its type."""
        return self.names.get(value.text, value.text)

    def typed(self, value: Value) -> str:
        return f"{value.type} {self.names.get(value.text, value.text)}"

    def i64(self, value: Int) -> str:
        return str(value) if isinstance(value, int) else self.of(value)

    def new(self) -> str:
        self.next += 1
        return f"%v{self.next}"

    def made(self, value: Value) -> str:
        """The name of a result."""
        self.next += 1
        name = self.names[value.text] = f"%v{self.next}"
        return name

    def new_label(self, stem: str) -> str:
        self.next += 1
        return f"{stem}{self.next}"

    def start(self, label: str) -> None:
        """Begin a block; the previous one must have ended in a branch."""
        self.lines.append(f"{label}:")
        self.label = label

    def branch(self, label: str) -> None:
        self.lines.append(f"  br label %{label}")

    def branch_if(
        self, condition: str, then: str, otherwise: str, *, rarely: bool = False, rolled: bool = False
    ) -> None:
        suffix = ""
        if rarely:
            self.text.metadata.add("!2")
            suffix = ", !prof !2"
        if rolled:
            self.text.metadata |= {"!0", "!1"}
            suffix = ", !llvm.loop !0"
        self.lines.append(f"  br i1 {condition}, label %{then}, label %{otherwise}{suffix}")

    def phi(self, result: Value, *incoming: tuple[str, str]) -> None:
        pairs = ", ".join(f"[ {text}, %{label} ]" for text, label in incoming)
        self.lines.append(f"  {self.made(result)} = phi {result.type} {pairs}")

    # --- what holds blocks ----------------------------------------------------------------------------------------

    def loop(self, node: For) -> None:
        """Bottom-tested, and guarded where it is not known to run at least once."""
        low, high = node.low, node.high
        known = isinstance(low, int) and isinstance(high, int)
        head, done, before = self.new_label("loop"), self.new_label("done"), self.label
        if known:
            self.branch(head)
        else:
            some = self.new()
            self.lines.append(f"  {some} = icmp slt i64 {self.i64(low)}, {self.i64(high)}")
            self.branch_if(some, head, done)
        first = [self.of(value) for value in node.carried]
        self.start(head)
        hole = len(self.lines)
        index, inside = self.made(node.counter), [self.made(value) for value in node.inside]
        self.block(node.body)
        following = self.new()
        self.lines.append(f"  {following} = add nsw i64 {index}, {node.step}")
        tail, last = self.label, [self.of(value) for value in node.after]
        starts, ends = [self.i64(low), *first], [following, *last]
        carried = (node.counter, *node.inside)
        self.lines[hole:hole] = _phis(carried, [index, *inside], (starts, before), (ends, tail))
        more = self.new()
        self.lines.append(f"  {more} = icmp slt i64 {following}, {self.i64(high)}")
        self.branch_if(more, head, done, rolled=node.rolled)
        self.start(done)
        for result, a, b in zip(node.results, first, last, strict=True):
            if known:
                self.names[result.text] = b
            else:
                self.phi(result, (a, before), (b, tail))

    def when(self, node: When) -> None:
        yes, no, join = (self.new_label(stem) for stem in ("then", "else", "join"))
        self.branch_if(self.of(node.condition), yes, no, rarely=node.rarely)
        ends = []
        for label, block, values in ((yes, node.then, node.then_values), (no, node.otherwise, node.otherwise_values)):
            self.start(label)
            self.block(block)
            ends.append([(self.of(value), self.label) for value in values])
            self.branch(join)
        self.start(join)
        for result, first, second in zip(node.results, *ends, strict=True):
            self.phi(result, first, second)

    def repeat(self, node: Repeat) -> None:
        head, inside, done = (self.new_label(stem) for stem in ("again", "inside", "done"))
        before, starts = self.label, [self.of(value) for value in node.carried]
        self.branch(head)
        self.start(head)
        hole, kept = len(self.lines), [self.made(value) for value in node.inside]
        self.block(node.first)
        self.branch_if(self.of(node.condition), inside, done)
        self.start(inside)
        self.block(node.body)
        ends = [self.of(value) for value in node.after]
        self.lines[hole:hole] = _phis(node.inside, kept, (starts, before), (ends, self.label))
        self.branch(head)
        self.start(done)


def _phis(
    values: Sequence[Value], names: Sequence[str], first: tuple[Sequence[str], str], after: tuple[Sequence[str], str]
) -> list[str]:
    """What begins the block of a loop: each value by name is one of `first`, and then one of `after`, with their blocks."""
    (starts, before), (ends, tail) = first, after
    return [
        f"  {name} = phi {value.type} [ {start}, %{before} ], [ {end}, %{tail} ]"
        for value, name, start, end in zip(values, names, starts, ends, strict=True)
    ]


# --- operations -------------------------------------------------------------------------------------------------------


def _plain(b: _Body, node: Operation) -> None:
    """An operation of one operand, or an intrinsic."""
    opcode, result, operands, _ = node
    assert result is not None
    if opcode.startswith("llvm."):
        _intrinsic(b, node)
        return
    (operand,) = operands
    given = b.typed(operand)
    b.lines.append(f"  {b.made(result)} = {opcode} {given}")


def _intrinsic(b: _Body, node: Operation) -> None:
    """The overload suffix comes from the first operand."""
    opcode, result, operands, _ = node
    assert result is not None
    first, flags = operands[0], _FLAGS.get(opcode.removeprefix("llvm."), ())
    name = f"{opcode}.{overload(first.type)}"
    b.text.declare(name, result.type, [*(one.type for one in operands), *flags])
    given = ", ".join([*(b.typed(one) for one in operands), *(f"{flag} false" for flag in flags)])
    b.lines.append(f"  {b.made(result)} = call {result.type} @{name}({given})")


def _call(b: _Body, node: Operation) -> None:
    _, result, operands, (name,) = node
    if node.opcode == "intrinsic":
        b.text.declare(str(name), "void" if result is None else result.type, [one.type for one in operands])
    given = ", ".join(b.typed(one) for one in operands)
    if result is None:
        b.lines.append(f"  call void @{name}({given})")
    else:
        b.lines.append(f"  {b.made(result)} = call {result.type} @{name}({given})")


def _typed(b: _Body, node: Operation) -> None:
    """An operation whose operands have types of their own."""
    opcode, result, operands, _ = node
    assert result is not None
    given = ", ".join(b.typed(one) for one in operands)
    b.lines.append(f"  {b.made(result)} = {opcode} {given}")


def _convert(b: _Body, node: Operation) -> None:
    opcode, result, (value,), _ = node
    assert result is not None
    given = b.typed(value)
    b.lines.append(f"  {b.made(result)} = {opcode} {given} to {result.type}")


def _broadcast(b: _Body, node: Operation) -> None:
    """The first lane of a vector in all."""
    _, result, (first,), _ = node
    assert result is not None
    given = f"{b.typed(first)}, {first.type} poison, <{result.lanes} x i32> zeroinitializer"
    b.lines.append(f"  {b.made(result)} = shufflevector {given}")


def _shuffle(b: _Body, node: Operation) -> None:
    _, result, (first, second), lanes = node
    assert result is not None
    mask = ", ".join(f"i32 {lane}" for lane in lanes)
    given = f"{b.typed(first)}, {b.typed(second)}, <{len(lanes)} x i32> <{mask}>"
    b.lines.append(f"  {b.made(result)} = shufflevector {given}")


def _address(b: _Body, node: Operation) -> None:
    opcode, result, (pointer, offset), (element,) = node
    assert result is not None
    given = f"{element}, {b.typed(pointer)}, {b.typed(offset)}"
    b.lines.append(f"  {b.made(result)} = {opcode} {given}")


def _load(b: _Body, node: Operation) -> None:
    _, result, (pointer,), (align,) = node
    assert result is not None
    given = b.typed(pointer)
    b.lines.append(f"  {b.made(result)} = load {result.type}, {given}, align {align}")


def _store(b: _Body, node: Operation) -> None:
    _, _, (value, pointer), (align,) = node
    b.lines.append(f"  store {b.typed(value)}, {b.typed(pointer)}, align {align}")


def _alloca(b: _Body, node: Operation) -> None:
    _, result, _, (element, count, align) = node
    assert result is not None
    b.entry.append(f"  {b.made(result)} = alloca {element}, i64 {count}, align {align}")


def _copy(b: _Body, node: Operation) -> None:
    _, _, (target, source, nbytes), (align,) = node
    b.text.declare("llvm.memcpy.p0.p0.i64", "void", ["ptr", "ptr", "i64", "i1"])
    where = f"ptr align {align} {b.of(target)}, ptr align {align} {b.of(source)}"
    b.lines.append(f"  call void @llvm.memcpy.p0.p0.i64({where}, {b.typed(nbytes)}, i1 false)")


def _fill(b: _Body, node: Operation) -> None:
    _, _, (target, byte, nbytes), (align,) = node
    b.text.declare("llvm.memset.p0.i64", "void", ["ptr", "i8", "i64", "i1"])
    where = f"ptr align {align} {b.of(target)}, {b.typed(byte)}"
    b.lines.append(f"  call void @llvm.memset.p0.i64({where}, {b.typed(nbytes)}, i1 false)")


def _masked_load(b: _Body, node: Operation) -> None:
    _, result, (pointer, mask, other), _ = node
    assert result is not None
    kind = result.type
    name = f"llvm.masked.load.{overload(kind)}.p0"
    b.text.declare(name, kind, ["ptr", "i32", mask.type, kind])
    given = f"{b.typed(pointer)}, i32 {element_bytes(kind)}, {b.typed(mask)}, {b.typed(other)}"
    b.lines.append(f"  {b.made(result)} = call {kind} @{name}({given})")


def _masked_store(b: _Body, node: Operation) -> None:
    _, _, (value, pointer, mask), _ = node
    name = f"llvm.masked.store.{overload(value.type)}.p0"
    b.text.declare(name, "void", [value.type, "ptr", "i32", mask.type])
    given = f"{b.typed(value)}, {b.typed(pointer)}, i32 {element_bytes(value.type)}, {b.typed(mask)}"
    b.lines.append(f"  call void @{name}({given})")


def _prefetch(b: _Body, node: Operation) -> None:
    _, _, (pointer,), (locality,) = node
    b.text.declare("llvm.prefetch.p0", "void", ["ptr", "i32", "i32", "i32"])
    b.lines.append(f"  call void @llvm.prefetch.p0({b.typed(pointer)}, i32 0, i32 {locality}, i32 1)")


def _hidden(b: _Body, node: Operation) -> None:
    _, result, (value,), _ = node
    assert result is not None
    given = b.typed(value)
    if value.type == "ptr":
        b.text.declare("llvm.launder.invariant.group.p0", "ptr", ["ptr"])
        b.lines.append(f"  {b.made(result)} = call ptr @llvm.launder.invariant.group.p0({given})")
    else:
        b.lines.append(f'  {b.made(result)} = call {value.type} asm "", "=r,0"({given})')


def _same(b: _Body, node: Operation) -> None:
    """Another name for a value."""
    _, result, (value,), _ = node
    assert result is not None
    b.names[result.text] = b.of(value)


def _return(b: _Body, node: Operation) -> None:
    b.lines.append("  ret " + (b.typed(node.operands[0]) if node.operands else "void"))


_WRITERS: dict[str, Callable[[_Body, Operation], None]] = {
    **dict.fromkeys(("select", "extractelement", "insertelement"), _typed),
    **dict.fromkeys(
        "sitofp uitofp fptosi fptoui sext zext trunc fpext fptrunc bitcast ptrtoint inttoptr".split(), _convert
    ),
    **dict.fromkeys(("getelementptr", "getelementptr inbounds"), _address),
    "call": _call,
    "intrinsic": _call,
    "broadcast": _broadcast,
    "shufflevector": _shuffle,
    "load": _load,
    "store": _store,
    "alloca": _alloca,
    "memcpy": _copy,
    "memset": _fill,
    "masked.load": _masked_load,
    "masked.store": _masked_store,
    "prefetch": _prefetch,
    "hidden": _hidden,
    "same": _same,
    "ret": _return,
}
