"""`python -m tests.blocks PAGE...`: write what blocks say now into pages, where they show something else."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from tests.blocks import renewed, run_page
from tests.blocks.models import names_of

if __name__ == "__main__":
    for name in sys.argv[1:]:
        page = Path(name).resolve()
        with tempfile.TemporaryDirectory() as folder:
            os.environ |= {"FUSEWISE_CACHE_DIR": f"{folder}/cache", "FUSEWISE_THREADS": "1"}
            wrong = run_page(page, Path(folder), names_of(page, Path(folder)))
        page.write_text(renewed(page.read_text(), wrong))
        print(f"{name}: {len(wrong)} blocks renewed")
