"""The `fmq` command's first breath: so little that Ctrl-C in its first moments ends it quietly too.

Importing the rest takes a while; who changes his mind meanwhile should see no stack trace. The
command line itself is `fmqcli.main`.
"""

import os
import signal
import sys


def main() -> None:
    """Load the command line and run it; never returns."""
    try:
        from fmqcli import main as command_line
    except KeyboardInterrupt:
        sys.stderr.flush()
        os._exit(
            128 + signal.SIGINT
        )  # half of the modules are imported: none of that code may run on
    except ImportError as error:
        from fmqcore.extras import what_is_missing

        message = what_is_missing(error, "cli")
        if not message:
            raise
        sys.exit(_print_error(f"fmq: {message}"))
    command_line.main()


def _print_error(text: str) -> int:
    """One line on standard error, and sysexits' EX_UNAVAILABLE."""
    sys.stderr.write(f"{text}\n")
    return 69
