"""The signals that end a program in order."""

import signal


def ending_signals() -> list[signal.Signals]:
    """Return SIGTERM, and SIGHUP unless the program inherited it as ignored (`nohup`)."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return [signal.SIGTERM]
    return [signal.SIGTERM, signal.SIGHUP]
