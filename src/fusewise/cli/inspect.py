"""`fusewise inspect`: what a model is, and what of it runs natively."""

from __future__ import annotations

from fusewise.cli.options import Json, ModelName, Shapes, Symbols, shapes_of, symbols_of

__all__ = ["inspect"]


def inspect(model: ModelName, shape: Shapes = None, symbol: Symbols = None, json: Json = False) -> None:
    """Say what MODEL is: operators, mapping types, size, cost, and what of it runs natively here."""
    from fusewise import api
    from fusewise.cli.show import count, facts, print_json, table

    found = api.inspect(model, shapes=shapes_of(shape), symbols=symbols_of(symbol))
    if json:
        print_json(found)
        return
    facts(
        [
            ("model", found["model"]),
            ("opset", str(found["opset"])),
            *(("input", f"{name}: {kind}") for name, kind in found["inputs"].items()),
            *(("output", f"{name}: {kind}") for name, kind in found["outputs"].items()),
            ("nodes", f"{found['nodes']} ({found['nodes_compiled']} after clean-up)"),
            ("parameters", count(found["parameters"])),
            ("multiply-accumulates", count(found["macs"])),
            ("native nodes", str(found["native_nodes"])),
            ("host nodes", str(found["host_nodes"])),
            *(("  on the host", f"{row['op']} {row['node']}: {row['reason']}") for row in found["host"]),
        ]
    )
    table(("operator", "nodes"), [(name, str(n)) for name, n in found["operators"].items()])
    table(("mapping type", "nodes"), [(name.replace("_", "-"), str(n)) for name, n in found["mapping_types"].items()])
