"""`fmq-operator`, or `python -m fmqoperator`: the operator as a process."""

import sys

from fmqcore.extras import what_is_missing


def main() -> None:
    """Run it until SIGTERM; the exit status says why it ended."""
    try:
        from fmqoperator.shell.process import run_operator
    except ImportError as error:
        missing = what_is_missing(error, "operator")
        if not missing:
            raise
        sys.stderr.write(f"fmq-operator: {missing}\n")
        sys.exit(69)  # sysexits' EX_UNAVAILABLE
    sys.exit(run_operator())


if __name__ == "__main__":
    main()
