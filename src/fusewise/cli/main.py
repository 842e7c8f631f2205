"""The program `fusewise`: every way to end, with its exit status.

0 done, 1 our fault, 2 usage, 3 model invalid or unsupported, 4 answers differ, 5 a resource limit, 6 no feasible plan,
130 interrupted, 141 nobody reads standard output any more. Data goes to stdout, everything else to stderr.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import NoReturn

from fusewise.cli.streams import ReaderLeft, streams, words_and_talk
from fusewise.errors import FusewiseError

__all__ = ["main", "run"]

INTERRUPTED = 130
READER_LEFT = 141
"""What a shell reports of a program that ends by SIGPIPE, as most do whose reader leaves."""

COMPLETION = "_FUSEWISE_COMPLETE"
"""Set by a shell that completes a line (`fusewise completion`)."""


def run(arguments: Sequence[str], *, leave: bool = False) -> int:
    """Run the program with these words; its exit status. `leave` ends the process at once when it is interrupted."""
    words, said, debug = words_and_talk(arguments)
    try:
        with streams(said):
            program = _program()  # here, so that an interruption while it is loaded ends like any other
            if COMPLETION in os.environ:
                from typer.completion import completion_init  # type: ignore[attr-defined]

                completion_init()
            program(words, prog_name="fusewise", obj=tuple(words))
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
        return _interrupted(leave) if status == INTERRUPTED else status
    except KeyboardInterrupt:
        return _interrupted(leave)
    except ReaderLeft:
        return READER_LEFT
    except FusewiseError as error:
        return _ended(str(error), error.exit_status, debug)
    except MemoryError:
        return _ended("memory is full; give the model smaller shapes or the machine more memory", 5, debug)
    except Exception as error:
        about = " ".join(str(error).split()) or type(error).__name__
        return _ended(f"internal error: {type(error).__name__}: {about[:300]} (use --debug to see where)", 1, debug)
    return 0


@cache
def _program() -> Callable[..., None]:
    """All verbs with their options, made once in a process: that takes longer than many a verb."""
    from typer.main import get_command

    from fusewise.cli.app import app

    return get_command(app)


def main() -> NoReturn:
    """Run the program on the words it was called with, and leave with its exit status."""
    sys.exit(run(sys.argv[1:], leave=True))


def _interrupted(leave: bool) -> int:
    """Say that the program was interrupted, and end the process if it is to `leave`."""
    status = _ended("interrupted", INTERRUPTED)
    if leave:
        # At once: threads that still compile are not waited for, objects that were half made are not let go of (some
        # complain), and Python, which may remember the interruption, would end by the signal instead of the status.
        with suppress(OSError, AttributeError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
    return status


def _ended(sentence: str, status: int, debug: bool = False) -> int:
    """Say why the program ends."""
    if debug:
        import traceback

        traceback.print_exc()
    with suppress(OSError, AttributeError):  # a full device, or no stderr at all
        sys.stderr.write(f"fusewise: {' '.join(sentence.split())}\n")
    return status


if __name__ == "__main__":
    main()
