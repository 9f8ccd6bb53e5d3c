"""The `fmq` command's first breath: so little that Ctrl-C in its first moments ends it quietly too.

Importing the rest takes a while; who changes his mind meanwhile should see no stack trace. The
command line itself is `fmqclient.cli.main`.
"""

import os
import signal
import sys


def main() -> None:
    """Load the command line and run it; never returns."""
    try:
        from fmqclient.cli import main as command_line
    except KeyboardInterrupt:
        sys.stderr.flush()
        os._exit(128 + signal.SIGINT)  # half of it is imported: nothing of that may run on
    command_line.main()
