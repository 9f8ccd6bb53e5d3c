"""The data jobs' command line, whole: `fmqspark` and the client do not know each other.

Importing it adds to `fmqspark.cli.main.app` the one job that sends messages.
"""

from fmqcli.commands.job import app

__all__ = ["app"]
