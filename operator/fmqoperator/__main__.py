"""`fmq-operator`, or `python -m fmqoperator`: the operator as a process."""

import sys


def main() -> None:
    """Run it until SIGTERM; the exit status says why it ended."""
    from fmqoperator.shell.process import run_operator

    sys.exit(run_operator())


if __name__ == "__main__":
    main()
