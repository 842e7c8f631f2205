"""The first page of the reference."""

from __future__ import annotations

__all__ = ["page"]


def page() -> str:
    """What is looked up where."""
    return """# Reference

These pages are read from the program when the site is built: what they say is what this version does.

| page | what it lists |
| --- | --- |
| [Python](python.md) | everything that `import fusewise` gives, with types and errors |
| [Command line](command-line.md) | every verb with its options and examples |
| [Errors and exit statuses](statuses.md) | how a program ends, and which error that is in Python |
| [Options and environment](environment.md) | how a model is compiled, and what the program reads from its environment |
| [JSON output](json.md) | what `--json` prints, key by key |
| [The report document](report-document.md) | what a report holds as data, and its JSON schema |
| [Operators](../operators.md) | every operator of ONNX by element type |
| [Operators of ONNX Runtime](../operators.md#operators-of-onnx-runtime) | those of `com.microsoft` |
| [Rewrite rules](../rules.md) | every algebraic rule and substitution |
| [Passes and pipelines](passes.md) | every pass by name, what it does to answers, and the named orders |
| [Kernels](kernels.md) | the ways to run each family of operators |
| [Names of decisions](decisions.md) | everything that `--disable` can name |
| [Models of the zoo](models.md) | the built-in architectures |
| [Machines](machines.md) | processors that code is generated for |
| [Accelerators of plan](presets.md) | hardware presets of `fusewise plan` |
| [Compiled files](compiled-files.md) | what a `.fw` file states, and who can open it |
"""
