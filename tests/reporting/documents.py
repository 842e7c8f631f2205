"""A small report document, made by hand: a convolution with what follows it, a step on the host, and one more group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["HOSTILE", "small"]

HOSTILE = (
    "<script>window.ran = 1</script>",
    "</script><script>window.ran = 2</script>",
    '"><img src=x onerror="window.ran = 3">',
    "{{7*7}}",
    "${window.ran = 4}",
    "line\u2028separator",
    "control\x00\x07\x1b[31m",
    "right\u202eto left\u2066",
    "<!--<script>",
    "javascript:window.ran=5",
    "\ud800 half a pair",
    "__proto__",
)
"""Texts that a page must show and never act upon."""


def small(named: Callable[[str], str] = lambda text: text) -> dict[str, Any]:
    """The document; `named` gives what stands in place of each name, path, attribute, title and reason. It must keep them apart."""
    names = ("conv", "bn", "relu", "nonzero", "head")
    conv, bn, relu, nonzero, head = (named(name) for name in names)
    x, w, a, b, c, d, y = (named(value) for value in ("x", "w", "a", "b", "c", "d", "y"))
    values = {
        x: _value("float32[1,3,32,32]", 12288),
        w: _value("float32[16,3,3,3]", 1728, constant=True),
        a: _value("float32[1,16,32,32]", 65536),
        b: _value("float32[1,16,32,32]", 65536),
        c: _value("float32[1,16,32,32]", 65536),
        d: _value("int64[4,n]", None),
        y: _value("float32[1,10]", 40),
    }
    folding = _decision(0, "rewrite", named("fold-batch-norm"), [conv, bn], named("saves arithmetic"))
    kernel = {"group": 0, "runs": "kernel"}
    written = [
        _node(
            0, conv, "Conv", [x, w], [a], "many_to_many", attributes={named("strides"): named("[1, 1]")}, flops=884736
        ),
        _node(1, bn, "BatchNormalization", [a], [b], "one_to_one", flops=32768),
        _node(2, relu, "Relu", [b], [c], "one_to_one", flops=16384),
        _node(3, nonzero, "NonZero", [c], [d], "opaque"),
        _node(4, head, "ReduceMean", [c], [y], "many_to_many", flops=16384),
    ]
    native = [
        _node(
            0,
            conv,
            "Conv",
            [x, w],
            [b],
            "many_to_many",
            origin=[conv, bn],
            group=0,
            runs="kernel",
            flops=884736,
            how=named("direct"),
        ),
        _node(1, relu, "Relu", [b], [c], "one_to_one", origin=[relu], flops=16384, **kernel),
        _node(2, nonzero, "NonZero", [c], [d], "opaque", origin=[nonzero], group=1, runs="host"),
        _node(3, head, "ReduceMean", [c], [y], "many_to_many", origin=[head], group=2, runs="kernel", flops=16384),
    ]
    graph = {"inputs": [x], "outputs": [d, y], "values": values}
    reason = named("its result has a size that only running it tells")
    return {
        "schema": "fusewise-report",
        "version": 1,
        "title": named("small.onnx"),
        "verb": "report",
        "made": {"fusewise": "0.0", "at": "2026-01-01T00:00:00Z", "command": named("fusewise report small.onnx")},
        "model": {
            "name": named("small"),
            "opset": 24,
            "inputs": {x: "float32[1,3,32,32]"},
            "outputs": {d: "int64[4,n]", y: "float32[1,10]"},
            "symbols": {named("n"): 7},
            "nodes": 5,
            "parameters": 432,
            "macs": 442368,
        },
        "machine": {
            "processor": named("A processor"),
            "threads": 2,
            "instruction_set": "AVX2",
            "caches": [{"name": "L1", "bytes": 32768}],
        },
        "options": {named("fusion"): named("profile")},
        "stages": [
            {
                "id": "written",
                "title": "As written",
                "graph": "written",
                "ms": 1.25,
                "what": named("as it is in its file"),
            },
            {"id": "clean", "title": "Cleaned", "graph": "clean", "ms": 2.5, "what": "constants folded, rules applied"},
            {
                "id": "native",
                "title": "For this machine",
                "graph": "native",
                "ms": 0.75,
                "what": "operators with kernels here",
            },
            {"id": "groups", "title": "Groups", "graph": "native", "ms": 0.5, "what": "what is computed in one go"},
        ],
        "graphs": {
            "written": {**graph, "nodes": written, "outline": _flat(written)},
            "clean": {**graph, "nodes": native, "outline": _flat(native)},
            "native": {
                **graph,
                "nodes": native,
                "outline": [
                    {"kind": "group", "title": named("Conv+Relu"), "group": 0, "children": _flat(native[:2])},
                    *_flat(native[2:]),
                ],
            },
        },
        "groups": [
            _group(
                0, named("Conv+Relu"), [0, 1], "many_to_many", [0], anchor=0, bytes_saved=131072, stopped_by=[reason]
            ),
            _group(1, named("NonZero"), [2], "opaque", [1]),
            _group(2, named("ReduceMean"), [3], "many_to_many", [2], anchor=3),
        ],
        "verdicts": [
            _verdict(b, 0, 1, True, "fuse", named("one-to-one behind a product"), 131072),
            _verdict(c, 1, 2, False, "break", reason, 65536),
            _verdict(c, 1, 3, False, "ask", named("two readers"), 65536, option=named("--fusion greedy")),
        ],
        "kernels": [
            _kernel(0, named("conv_relu_0"), named("direct tile=4x16"), [0]),
            _kernel(1, named("mean_1"), named("reduce lanes=8"), [2]),
        ],
        "steps": [
            _step(0, "native", 0, 0, named("Conv+Relu"), [x, w], [c]),
            _step(1, "host", None, 1, named("NonZero"), [c], [d], reason=reason),
            _step(2, "native", 1, 2, named("ReduceMean"), [c], [y]),
        ],
        "decisions": [
            {**folding, "option": named("--disable fold@bn"), "before": 900.0, "after": 850.0},
            _decision(1, "kernel", named("winograd"), [conv], named("too few channels"), applied=False),
        ],
        "compile": {"ms": 40.0, "stages": [{"name": named("reading"), "ms": 10.0}, {"name": "generating", "ms": 30.0}]},
        "memory": {
            "arena_bytes": 131072,
            "constant_bytes": 1728,
            "steps": [
                {"step": 0, "live_bytes": 77824},
                {"step": 1, "live_bytes": 65536},
                {"step": 2, "live_bytes": 65576},
            ],
            "buffers": [
                {"value": c, "values": [b, c], "kind": "arena", "offset": 0, "bytes": 65536, "first": 0, "last": 2},
                {"value": "", "values": [], "kind": "workspace", "offset": 65536, "bytes": 4096, "first": 0, "last": 0},
            ],
        },
        "times": {
            "ms": 0.42,
            "runs": 20,
            "disturbed": named("Other programs were in the way."),
            "limits": {"gflops": 100.0, "copy_gbs": 12.5, "levels": [{"name": "L1", "bytes": 32768, "gbs": 200.0}]},
            "groups": [
                _time(0, named("Conv+Relu"), 0.3, 0.75),
                _time(1, named("NonZero"), 0.08, 0.2),
                _time(2, named("ReduceMean"), 0.02, 0.05),
            ],
            "timeline": [{"step": 0, "worker": 0, "start_us": 0.0, "us": 300.0}],
        },
        "search": None,
        "charts": [],
    }


def _value(kind: str, size: int | None, *, constant: bool = False) -> dict[str, Any]:
    return {"type": kind, "bytes": size, "constant": constant}


def _node(
    number: int, name: str, op: str, inputs: list[str], outputs: list[str], mapping: str, **more: Any
) -> dict[str, Any]:
    found = {
        "id": number,
        "name": name,
        "op": op,
        "domain": "",
        "inputs": inputs,
        "outputs": outputs,
        "mapping": mapping,
    }
    rest = {"attributes": {}, "flops": 0, "bytes": 65536, "origin": [name], "group": None, "runs": None, "how": ""}
    return {**found, **rest, **more}


def _flat(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"kind": "node", "title": node["name"], "node": node["id"]} for node in nodes]


def _group(number: int, title: str, nodes: list[int], mapping: str, steps: list[int], **more: Any) -> dict[str, Any]:
    found = {"id": number, "title": title, "nodes": nodes, "mapping": mapping, "steps": steps}
    return {**found, "anchor": None, "bytes_saved": 0, "stopped_by": [], **more}


def _verdict(
    value: str,
    before: int,
    after: int,
    fused: bool,
    verdict: str,
    reason: str,
    saved: int,
    *,
    option: str | None = None,
) -> dict[str, Any]:
    found = {"value": value, "from": before, "to": after, "fused": fused, "verdict": verdict, "reason": reason}
    return {**found, "saved_bytes": saved, "saved_ms": None, "rule": None, "option": option}


def _kernel(number: int, symbol: str, way: str, steps: list[int]) -> dict[str, Any]:
    code = "\n".join(("define void @kernel(ptr %p) {", f"  ; {way}", "  ret void", "}"))
    found = {"id": number, "symbol": symbol, "way": way, "family": "product", "schedule": {"tile": "4x16", "lanes": 8}}
    return {**found, "nest": f"for i\n  {way}", "ir": code, "code_bytes": 640, "steps": steps}


def _step(
    number: int,
    kind: str,
    kernel: int | None,
    group: int,
    label: str,
    reads: list[str],
    writes: list[str],
    *,
    reason: str = "",
) -> dict[str, Any]:
    found = {"index": number, "kind": kind, "kernel": kernel, "group": group, "label": label, "barrier": number > 0}
    return {**found, "strips": 4, "reads": reads, "writes": writes, "reason": reason}


def _decision(number: int, kind: str, what: str, where: list[str], reason: str, **more: Any) -> dict[str, Any]:
    found = {"serial": number, "kind": kind, "what": what, "where": where, "reason": reason}
    return {**found, "before": None, "after": None, "unit": None, "applied": True, "option": None, **more}


def _time(group: int, operators: str, ms: float, share: float) -> dict[str, Any]:
    found = {"group": group, "operators": operators, "ms": ms, "share": share, "flops": 901120, "bytes": 77824}
    rates = {"gflops": 40.0, "gbs": 3.0, "ceiling_gflops": 100.0, "ceiling_gbs": 12.5}
    return {**found, **rates, "peak": 0.4, "bound": "compute", "level": "L1", "kernels": [], "nodes": []}
