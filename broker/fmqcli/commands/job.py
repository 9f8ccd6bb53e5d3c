"""`fmq job`: data jobs on data directories. They live in `fmqspark`, imported here only."""

import sys

import typer

from fmqcli.common import UNAVAILABLE, talk

try:
    from fmqcli.commands.replay import replay
    from fmqspark.cli.main import app

    app.command()(replay)
except ImportError as missing:
    _WHY = str(missing)
    app = typer.Typer(add_help_option=False)

    @app.callback(
        invoke_without_command=True,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
    def _absent() -> None:
        """Raise `Unavailable` with the package to install."""
        talk(f"the jobs are not installed ({_WHY}): pip install 'fmq-broker[spark]'")
        sys.exit(UNAVAILABLE)


__all__ = ["app"]
