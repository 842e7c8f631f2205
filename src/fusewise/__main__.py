"""`python -m fusewise` is the program `fusewise`."""

from __future__ import annotations

from fusewise.cli.main import main

if __name__ == "__main__":
    main()
