"""Accelerators that `fusewise plan --hardware` can name, schemes and their options."""

from __future__ import annotations

from dataclasses import fields

from documentation.markdown import code, plain, table

__all__ = ["page"]

HEAD = """# Accelerators of plan

`fusewise plan MODEL --hardware NAME`; a file of your own ends in `.toml` and has the same keys. `--buffer` gives
another buffer, `--set KEY=VALUE` another option of the scheme. [What a group costs](../cost-models.md), [what
searches reach](../plan-search.md).

"""


def page() -> str:
    """Presets, the file of one of them, and the schemes."""
    from importlib.resources import files

    from fusewise.accel.hardware import DEFAULT, hardware_named, preset_names
    from fusewise.accel.schemes.catalogue import SCHEMES
    from fusewise.words import size_text

    rows = []
    for name in preset_names():
        one = hardware_named(name)
        rows.append(
            (
                code(name) + (" (default)" if name == DEFAULT else ""),
                size_text(one.buffer_bytes),
                one.bits,
                f"{one.macs_per_cycle:g}",
                f"{one.clock_mhz:g}",
                f"{one.dram_bytes_per_second / 1e9:g}",
                f"{one.dram_pj_per_byte:g}",
                f"{one.buffer_pj_per_byte:g}",
            )
        )
    headings = (
        *("name", "buffer", "bits", "MACs a cycle", "MHz"),
        *("DRAM GB/s", "DRAM pJ a byte", "buffer pJ a byte"),
    )
    text = (files("fusewise.accel") / "presets" / f"{DEFAULT}.toml").read_text()
    schemes = "".join(
        f"\n### {name}\n\n{plain(' '.join((made.__doc__ or '').split(chr(10) * 2)[0].split()))}\n\n"
        + table(("option", "default"), [(code(field.name), code(field.default)) for field in fields(made)])
        for name, made in SCHEMES.items()
    )
    return (
        HEAD
        + table(headings, rows, right=range(1, len(headings)))
        + f"\n## A file\n\nThe preset `{DEFAULT}`:\n\n```toml\n{text}```\n\n## Schemes\n{schemes}"
    )
