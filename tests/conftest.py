"""What all tests share: the line on the ONNX test-suite at the end of a run."""

from __future__ import annotations


def pytest_terminal_summary(terminalreporter):
    """Add up what the shards of the ONNX backend suite recorded, wherever they ran."""
    reports = [r for kind in ("passed", "failed") for r in terminalreporter.stats.get(kind, [])]
    shards = [value for r in reports for name, value in r.user_properties if name == "onnx_suite" and r.when == "call"]
    if shards:
        ran, passed, native = (sum(column) for column in zip(*shards, strict=True))
        terminalreporter.write_line(
            f"ONNX backend suite: {passed} of {ran} tests pass ({passed / ran:.2%}), {native} compiled without host steps"
        )
