"""Linear attention: a block has some numbers of the values of one head's state in registers, and goes through all steps.

    state = past or zeros                              [numbers of a key, some of a value's]
    for step:  state = decay * state
               added = value, or rate * (value - sum of key * state)
               state = state + key * added;  output = scale * sum of query * state, for each query head that shares it

No number of a value depends on another one, so blocks share out heads and values and never wait for each other. What a step
reads is loaded while the step before it is computed. Everything is float32, whatever operands are. Steps are not taken several at
a time, as products: a long sequence takes as many turns as it has steps.
"""

from __future__ import annotations

from dataclasses import field

from fusewise.codegen.gpu.device import Device
from fusewise.codegen.gpu.kernel import GpuKernel, NoKernel, arguments_of
from fusewise.codegen.gpu.nests import next_power
from fusewise.codegen.gpu.source import TritonWriter, is_int32
from fusewise.codegen.gpu.words import literal
from fusewise.lower.linear import LINEAR, linear_operand, linear_sizes
from fusewise.lower.task import Operand, Task
from fusewise.ops.linear_attention import LinearAttention
from fusewise.records import record

__all__ = ["linear_attention"]

_STATE = 1024
"""Numbers of a state that one warp has: 32 for each thread, and as many again while they are added up."""
_LARGEST = 2048
"""Numbers of a key for which a block has the state of a few of a value's."""
_LEAST = 4
"""Numbers of a value that a block has, at least."""
_STEP_US = 0.5
"""From one step's state to the next: sums over lanes, one behind the other. An estimate."""
_AHEAD = 4
"""Query heads of a state whose queries are loaded a step ahead, at most."""


def linear_attention(task: Task, device: Device, precision: str) -> GpuKernel:
    """A kernel for a task with LinearAttention at its anchor (`lower.linear`); `NoKernel` for others."""
    if task.anchor is None or task.anchor.family != LINEAR:
        raise NoKernel("no linear attention")
    if not task.is_fixed:
        raise NoKernel("a kernel for a GPU is written for known sizes")
    s = linear_sizes(task)
    keys = next_power(s.keys)
    if keys > _LARGEST:
        raise NoKernel(f"keys of more than {_LARGEST} numbers")
    width = min(next_power(s.values), max(_LEAST, _STATE // keys))
    writer = TritonWriter(task)
    _LinearText(writer, s, keys, width).write()
    arguments = arguments_of(task)
    types, alignments = zip(*arguments.values(), strict=True)
    symbol = f"linear_{task.digest}"
    return GpuKernel(
        symbol,
        writer.source(symbol, arguments),
        tuple(arguments),
        types,
        alignments,
        (s.samples * s.shared * -(-s.values // width),),
        max(1, min(8, keys * width // _STATE)),
        1,
        f"{width} numbers of a value to a block",
        wait_us=_STEP_US * s.steps,
    )


@record
class _LinearText:
    """The text of the kernel. `ahead` has what a step reads, by the name of the variable, as text of the step's number."""

    writer: TritonWriter
    s: LinearAttention
    keys: int
    width: int
    ahead: dict[str, str] = field(default_factory=dict)

    def write(self) -> None:
        """All of it."""
        put, s = self.writer.put, self.s
        self._place()
        self._begin()
        self._note_reads()
        put("begin = tl.full([], 0, tl.int32)")
        for name, text in self.ahead.items():
            put(f"{name} = {text.format(step='begin')}")
        put(f"for turn in range({s.steps}):", 1)
        put("step = begin + turn")
        put(f"following = tl.minimum(step + 1, {s.steps - 1})")
        for name, text in self.ahead.items():
            put(f"next_{name} = {text.format(step='following')}")
        self._step()
        for name in self.ahead:
            put(f"{name} = next_{name}")
        self.writer.depth = 1
        if any(store.operand == "out1" for store in self.writer.task.stores):
            last = self._operand("out1")
            put(f"tl.store({self._state_at(last)}, state.to({last.name}.dtype.element_ty), mask=inside)")

    # --- places --------------------------------------------------------------------------------------------------

    def _place(self) -> None:
        put, s = self.writer.put, self.s
        blocks = -(-s.values // self.width)
        put("block = tl.program_id(0)")
        put(f"sample = block // {s.shared * blocks}")
        put(f"head = block // {blocks} % {s.shared}")
        put(f"i = tl.arange(0, {self.keys})[:, None]")
        put(f"j = block % {blocks} * {self.width} + tl.arange(0, {self.width})[None, :]")
        put(f"is_key = i < {s.keys}")
        put(f"is_value = j < {s.values}")
        put(f"inside = tl.broadcast_to(is_key & is_value, [{self.keys}, {self.width}])")

    def _operand(self, name: str) -> Operand:
        return self.writer.task.operand(name)

    def _given(self, place: int) -> Operand | None:
        return linear_operand(self.writer.task, place)

    def _at(self, operand: Operand, *places: str) -> str:
        """Where an element lies."""
        far = abs(operand.offset) + sum(
            abs(step) * 2 * next_power(extent) for step, extent in zip(operand.strides, operand.shape, strict=True)
        )
        kind = "int32" if is_int32(-far, far) else "int64"
        text = f"{operand.name} + {literal(operand.offset)}"
        for place, step in zip(places, operand.strides, strict=True):
            text += (
                f" + ({place}).to(tl.{kind}) * {literal(step)}"
                if kind == "int64"
                else f" + ({place}) * {literal(step)}"
            )
        return text

    def _state_at(self, operand: Operand) -> str:
        return f"tl.broadcast_to({self._at(operand, 'sample', 'head', 'i', 'j')}, [{self.keys}, {self.width}])"

    def _begin(self) -> None:
        put, past = self.writer.put, self._given(3)
        if past is None:
            put(f"state = tl.full([{self.keys}, {self.width}], 0.0, tl.float32)")
        else:
            put(f"state = tl.load({self._state_at(past)}, mask=inside, other=0.0).to(tl.float32)")

    def _note_reads(self) -> None:
        """What every step reads."""
        s = self.s
        key, value, decay, beta = (self._given(place) for place in (1, 2, 4, 5))
        assert key is not None and value is not None
        self.ahead["key"] = self._read(self._at(key, "sample", "{step}", f"head * {s.keys} + i"), "is_key")
        self.ahead["value"] = self._read(self._at(value, "sample", "{step}", f"head * {s.values} + j"), "is_value")
        if decay is not None and s.decays == s.shared * s.keys and s.keys > 1:
            self.ahead["decay"] = self._read(self._at(decay, "sample", "{step}", f"head * {s.keys} + i"), "is_key")
        elif decay is not None:
            self.ahead["decay"] = self._read(self._at(decay, "sample", "{step}", "head"))
        if beta is not None:
            self.ahead["rate"] = self._read(self._at(beta, "sample", "{step}", "head" if s.rates > 1 else "head * 0"))
        for number in range(self._sharing if self._sharing <= _AHEAD else 0):
            self.ahead[f"query{number}"] = self._query(number)

    @property
    def _sharing(self) -> int:
        return self.s.heads // self.s.shared

    def _query(self, number: int | str) -> str:
        query = self._given(0)
        assert query is not None
        head = f"(head * {self._sharing} + {number}) * {self.s.keys} + i"
        return self._read(self._at(query, "sample", "{step}", head), "is_key")

    @staticmethod
    def _read(place: str, mask: str = "") -> str:
        return f"tl.load({place}{f', mask={mask}, other=0.0' if mask else ''}).to(tl.float32)"

    # --- a step --------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        put, s = self.writer.put, self.s
        if s.gated:
            self._put_state("state * libdevice.exp(decay)")
        added = "value"
        if s.corrects:
            put("added = rate * (value - tl.sum(key * state, 0)[None, :])")
            added = "added"
        self._put_state(f"state + key * {added}")
        if all(store.operand != "out0" for store in self.writer.task.stores):
            return
        if self._sharing <= _AHEAD:
            for number in range(self._sharing):
                self._output(f"query{number}", number)
            return
        put(f"for number in range({self._sharing}):", 1)
        put(f"query = {self._query('number').format(step='step')}")
        self._output("query", "number")
        self.writer.depth -= 1

    def _put_state(self, text: str) -> None:
        """The state anew: 0 in lanes that are no number of a key, where what is infinite would make NaN for all."""
        is_padded = self.keys != self.s.keys
        self.writer.put(f"state = tl.where(is_key, {text}, 0.0)" if is_padded else f"state = {text}")

    def _output(self, query: str, number: int | str) -> None:
        put, s, out = self.writer.put, self.s, self._operand("out0")
        place = self._at(out, "sample", "step", f"(head * {self._sharing} + {number}) * {s.values} + j")
        total = f"tl.sum({query} * state, 0)[None, :] * {s.scale!r}"
        put(f"tl.store({place}, ({total}).to({out.name}.dtype.element_ty), mask=is_value)")
