"""The verifier accepts the programs that kernels are, and says where each kind of fault is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.codegen.nest.programs import ROWS, TASK, TEXT

from fusewise.codegen.families.boxes import align_boxes, suppress_boxes
from fusewise.codegen.llvm import entry
from fusewise.codegen.llvm.pack import PACK_PANELS
from fusewise.codegen.llvm.write import llvm_text
from fusewise.codegen.nest.build import Function, Module
from fusewise.codegen.nest.instruction import FUSED
from fusewise.codegen.nest.parse import parsed
from fusewise.codegen.nest.rules import SIGNATURES
from fusewise.codegen.nest.tile import Accumulate, Meanwhile, Tile
from fusewise.codegen.nest.tree import For, NestNode, Operation, Repeat, StoreAccumulator, Value, When
from fusewise.codegen.nest.verify import verify
from fusewise.codegen.target import TARGETS, Target
from fusewise.errors import BrokenKernel


def read(text: str = TEXT) -> Module:
    return parsed(text, {"task": TASK}, ROWS)


def body(lines: str, arguments: str = "ptr %a0, i64 %a1, float %a2, <4 x float> %a3", result: str = "void") -> Module:
    """A function of these lines and its return."""
    end = "" if "ret(" in lines else "ret()\n"
    return read(f"table @t: i8 = 1, 2\nfunction k({arguments}) -> {result} {{\n{lines}\n{end}}}\n")


def changed(kind: type[NestNode], given: Module | None = None, **changes: Any) -> Module:
    """The good program, or another, with other fields in its nodes of a kind."""

    def other(node: Any) -> NestNode:
        found: NestNode = node._replace(**changes) if isinstance(node, tuple) else replace(node, **changes)
        return found

    module = read() if given is None else given
    (function,) = module.functions
    function.include(tuple(other(node) if isinstance(node, kind) else node for node in function.taken()))
    return module


def tile(**changes: Any) -> Module:
    """The good program with another reduction."""
    (node,) = (node for node in read().functions[0].body if isinstance(node, Accumulate))
    return changed(Accumulate, reduction=replace(node.reduction, **changes))


def panel(**changes: Any) -> Module:
    (node,) = (node for node in read().functions[0].body if isinstance(node, Accumulate))
    return tile(panel=replace(node.reduction.panel, **changes))


def by(module: Module | None = None, **changes: Any) -> Module:
    """The good program, or another, with its reduction by a row of its own."""
    return changed(Accumulate, module, tile=Tile(2, 1, 4, replace(FUSED, name="outer", **changes)))


POINTER, NUMBER, ONE = Value("%a0", "ptr"), Value("%a1", "i64"), Value("1", "i64")


def test_a_good_program_passes() -> None:
    verify(read())
    verify(body("%v1: i64 = call(%a1) to elsewhere"))


@pytest.mark.parametrize(
    "lines, complaint",
    [
        ("%v1: float = fadd(float %v2, float 1.0)", r"%v1 = fadd uses %v2, which nothing before it defines"),
        ("if i1 true {\n%v1: i1 = same(i1 true)\n}\n%v2: i1 = same(%v1)", "uses %v1, which is another block's"),
        ("for %v1 in 0 .. 3 step 1 {\n}\n%v2: i64 = same(%v1)", "uses %v1, which is another block's"),
        ("%v1: i64 = same(i64 1)\n%v1: i64 = same(i64 1)", "defines %v1, which is defined before"),
        ("if i1 true {\n%v1: i64 = same(i64 1)\n}\n%v1: i64 = same(i64 1)", "defines %v1, which is defined before"),
        ("%a1: i64 = same(i64 1)", "defines %a1, which is defined before"),
        ("%v1: double = fneg(double %a2)", "uses %a2 as double, which is float"),
        ("%v1: float = fadd(%a2, %a3)", "is F, F -> F, which <4 x float> does not fit"),
        ("%v1: double = fadd(%a2, %a2)", "is F, F -> F, which double does not fit"),
        ("%v1: float = add(%a2, %a2)", "is I, I -> I, which float does not fit"),
        ("%v1: float = fadd(%a2)", "takes 2 operands, not 1"),
        ("fadd(%a2, %a2)", "gives a value"),
        ("%v1: ptr = store(%a2, %a0) align 4", "gives no value"),
        ("%v1: float = ponder(%a2)", "is no operation"),
        ("%v1: float = llvm.ponder(%a2)", "is no operation"),
        ("%v1: i1 = icmp(%a1, %a1)", "is no operation"),
        ("%v1: i1 = icmp olt(%a1, %a1)", "is no operation"),
        ("%v1: i64 = add fast(%a1, %a1)", "is no operation"),
        ("%v1: i1 = fcmp olt(%a3, %a3)", "T, T -> mask T|F, F -> mask F, which i1"),
        ("%v1: i1 = icmp eq(%a1, i32 1)", "which i32 does not fit"),
        ("%v1: float = select(i1 true, %a2, %a3)", "chooses between two"),
        ("%v1: <4 x float> = select(<2 x i1> true, %a3, %a3)", "condition of type <2 x i1>"),
        ("%v1: <2 x float> = shufflevector(%a3, %a3) lanes 7, 8", "lanes that are not among 8"),
        ("%v1: <4 x float> = shufflevector(%a3, %a3) lanes 0, 1", "gives 2 lanes"),
        ("%v1: <2 x float> = shufflevector(%a2, %a2) lanes 0, 1", "takes two vectors"),
        ("%v1: float = extractelement(%a3, i64 4)", "has no such lane"),
        ("%v1: double = extractelement(%a3, i64 0)", "which double does not fit"),
        ("%v1: float = load(%a1) align 4", "which i64 does not fit"),
        ("%v1: float = load(%a0) align 3", "needs an alignment"),
        ("%v1: float = load(%a0)", "needs an alignment"),
        ("store(%a0, %a2) align 4", "which float does not fit"),
        ("%v1: ptr = getelementptr(%a0, i32 1) of float", "which i32 does not fit"),
        ("%v1: ptr = getelementptr(%a0, i64 1) of room", "needs the type"),
        ("prefetch(%a0) locality 4", "needs a locality"),
        ("%v1: ptr = alloca() of float, 0, 64", "how many of it"),
        ("%v1: float = masked.load(%a0, <4 x i1> true, %a2)", "which <4 x i1> does not fit"),
        ("%v1: i64 = zext(%a1)", "fewer or more bits"),
        ("%v1: <2 x i64> = sext(<4 x i32> 0)", "makes no <2 x i64>"),
        ("%v1: float = sitofp(%a2)", "makes no float of float"),
        ("%v1: i64 = bitcast(%a2)", "as many bits"),
        ("%v1: float = fneg(%a2) with 3", "needs nothing"),
        ("%v1: room = same(room 1)", "uses room .*, which is no constant"),
        ("%v1: float = fneg(float \"1.5\")", "is no constant"),
        ("%v1: <4 x i8> = same(<4 x i8> [1, 2])", "is no constant"),
        ("%v1: i64 = same(i64 true)", "is no constant"),
        ("%v1: ptr = same(ptr @u)", "no table nor function"),
        ("call(%a1) to k", "gives 'k' what it does not take"),
        ("%v1: i64 = call(%a0, %a1, %a2, %a3) to k", "takes i64 from 'k', which gives void"),
        ("call(%a1)", "needs the name"),
        ("%v2: i64 = for %v1 in 0 .. 3 step 1 {\n}", "ends with what it does not begin with"),
        ("%v2: float = for %v1 in 0 .. 3 step 1 carrying %v3: i64 = %a1 {\nnext %v3\n}", r"ends with .*\(float\) and \(i64\)"),
        ("%v2: i64 = for %v1 in 0 .. 3 step 1 carrying %v3: i64 = %a1 {\n}", "goes on with what it does not"),
        ("for %v1 in 0 .. %a2 step 1 {\n}", "a bound of type float"),
        ("for %v1 in 0 .. 3 step 0 {\n}", "has the step 0"),
        ("for %v1 in 3 .. 3 step 1 {\n}", "never runs"),
        ("for %v1: i32 in 0 .. 3 step 1 {\n}", "counts in i32"),
        ("if %a1 {\n}", "a condition of type i64"),
        ("%v1: i64 = if i1 true {\ngive %a1\n}", "gives what is not taken"),
        ("repeat {\nwhile %a1\n}", "a condition of type i64"),
        ("repeat carrying %v1: float = %a1 {\nwhile i1 true\nnext %v1\n}", "carries what it does not begin with"),
        ("stage %a1 noted at %a1 {\n}", "a tag of type i64"),
        ("stage %a2 noted at %a0 {\n}", "a unit of type float"),
        ("ret()\nret()", "stands before the end"),
        ("ret(%a1)", "gives i64, not void"),
    ],
)  # fmt: skip
def test_faults_of_operations_and_blocks_are_found(lines: str, complaint: str) -> None:
    with pytest.raises(BrokenKernel, match=complaint):
        verify(body(lines))


@pytest.mark.parametrize(
    "broken, complaint",
    [
        (lambda: read("function k() -> void {\n}\n"), "the end does not return"),
        (lambda: read("function k() -> void {\nret()\n}\n" * 2), "'k' is defined twice"),
        (lambda: read("table @t: i8 = 1\n" * 2), "'t' is defined twice"),
        (lambda: read("table @t: i64 = 1.5\n"), "'t' holds something else"),
        (lambda: read("table @t: room = 1\n"), "'t' holds something else"),
        (lambda: body("", arguments="room %a0"), "of type room"),
        (lambda: changed(StoreAccumulator, pointers={"out0": POINTER}), "no pointer to in0"),
        (lambda: changed(StoreAccumulator, pointers={"out0": POINTER, "in0": NUMBER}), "a pointer to in0 of type i64"),
        (lambda: changed(StoreAccumulator, indices=(("i0", POINTER),)), "an index along i0 of type ptr"),
        (lambda: changed(StoreAccumulator, count=5), "has 5 of 4 lanes"),
        (lambda: changed(StoreAccumulator, value=Value("%v99", "float")), "uses %v99"),
        (lambda: changed(Accumulate, start=(Value("%v9", "<4 x float>"),)), "begins with what are not its accumulators"),
        (lambda: changed(Accumulate, start=(NUMBER, NUMBER)), "begins with what are not its accumulators"),
        (lambda: changed(Accumulate, results=()), "ends with what are not its accumulators"),
        (lambda: tile(rows=(POINTER,)), "has 1 rows"),
        (lambda: tile(rows=(POINTER, NUMBER)), "a row of type i64"),
        (lambda: by(rows=4), "is not made of outer, which takes 4 x 4"),
        (lambda: by(lanes=8), "is not made of outer, which takes 1 x 8"),
        (lambda: by(tile(together=2), rows=2), "does not fall into 2 groups"),
        (lambda: panel(columns=(POINTER, POINTER)), "has 2 vectors of columns"),
        (lambda: panel(columns=(NUMBER,)), "columns of type i64"),
        (lambda: panel(following=NUMBER), "a place of type i64"),
        (lambda: tile(levels=()), "has no loops"),
        (lambda: tile(together=3), "does not fall into 3 groups"),
        (lambda: tile(meanwhile=Meanwhile(2, Value("%v50", "i64"), (), Value("true", "i1"))), "into 2 parts"),
        (lambda: changed(Operation, result=Value("v1", "i64")), "name 'v1'"),
        (lambda: changed(Operation, result=Value("%v1", "room")), "the type 'room'"),
        (lambda: changed(For, carried=()), "carries what it does not begin with"),
        (lambda: changed(When, results=()), "gives what is not taken"),
        (lambda: changed(For, body=(Repeat((), (), (), Value("%v77", "i1"), (), ()),)), "uses %v77"),
    ],
)  # fmt: skip
def test_other_faults_are_found(broken: Callable[[], Module], complaint: str) -> None:
    with pytest.raises(BrokenKernel, match=complaint):
        verify(broken())


def test_what_a_loop_while_carries_is_known_behind_it() -> None:
    verify(body("repeat carrying %v1: i64 = %a1 {\nwhile i1 true\nnext %v1\n}\n%v2: i64 = same(%v1)"))


def test_signatures_name_what_they_bind() -> None:
    """Every letter stands alone somewhere, so that it means a type."""
    for opcode, signature in SIGNATURES.items():
        words = signature.replace("->", ",").replace(" ,", ",").split(",")
        alone = {word.strip() for word in words}
        derived = {word.split()[1] for word in words if len(word.split()) == 2}
        assert derived <= alone, opcode


def test_checked_builds_look_and_others_do_not() -> None:
    module, instructions = Module(), TARGETS[0].instructions
    f = module.function("k", ("ptr",))
    f.fadd(f.constant(0.0, "float"), f.constant(0.0, "double"))
    f.give_back()
    llvm_text(module, instructions)
    with pytest.raises(BrokenKernel, match="fadd"):
        llvm_text(module, replace(instructions, sanitize=True))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_routines_beside_kernels_pass(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Module] = []
    monkeypatch.setattr(entry, "llvm_text", lambda module: seen.append(module) or "")
    for code in (PACK_PANELS, align_boxes(target.instructions), suppress_boxes(target.instructions)):
        code.build()
    for module in seen:
        verify(module)
    assert len(seen) == 3


def test_functions_hold_on_to_their_names() -> None:
    """What has been built goes on being built with names of its own."""
    function = read().functions[0]
    assert isinstance(function, Function)
    assert function.named("i64").text == "%v17"
