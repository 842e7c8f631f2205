"""Build the site: `python -m documentation [--site FOLDER] [--without-runs]`, from the root of the repository.

A warning of MkDocs, a link or anchor that leads nowhere, and a page that would ask the network for anything make it fail. It
takes minutes, most of them runs of the program on small models; without these what they show is left out.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from documentation.build import BuildFailed, build


def main() -> int:
    """Build, and say where the site is."""
    parser = argparse.ArgumentParser(prog="python -m documentation", description="Build the documentation site.")
    parser.add_argument("--site", type=Path, default=Path("site"), metavar="FOLDER", help="where to (default: site)")
    parser.add_argument(
        "--without-runs", action="store_true", help="leave out what needs models to be compiled and timed"
    )
    given = parser.parse_args()
    begin = time.perf_counter()
    try:
        pages = build(given.site, runs=not given.without_runs)
    except BuildFailed as error:
        print(f"documentation: {error}", file=sys.stderr)
        return 1
    print(f"{pages} pages in {time.perf_counter() - begin:.0f} s: {given.site / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
