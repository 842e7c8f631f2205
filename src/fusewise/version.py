"""The version of this program, which compiled files and caches state."""

__all__ = ["VERSION"]

VERSION = "0.1.0"
