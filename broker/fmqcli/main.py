"""`fmq`: the entry point of the command line.

Sub-commands that need more than the client (a broker, ZooKeeper, Java) live in modules of their
own, which are imported only when they are asked for.
"""

import json
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any, Final

import typer

from fmqcli import common
from fmqcli.commands import consume, groups, ordered, produce, status, topics
from fmqcli.common import FAILED, INTERRUPTED, NO_READER, USAGE, talk
from fmqcli.stdio.streams import stand_in
from fmqcore.extras import what_is_missing
from fmqcore.version import VERSION

_ELSEWHERE: Final = {
    "broker": "Run a broker; change what one may serve.",
    "cluster": "Configure the broker groups in your ZooKeeper: apply, show, remove-group.",
    "failover": "Make another broker the group's master.",
    "journal": "Inspect a broker's data directory: offline, read-only.",
    "job": "Data jobs: check a journal and its replicas, rebuild indexes, archive and replay.",
    "dev": "A cluster on this machine to write programs against.",
    "demo": "The main job on this machine: a cluster, data, a killed master, a verdict.",
}
"""Sub-commands in `fmqcli.commands.<name>`, each with an `app`."""

_EXTRAS: Final = {
    "broker": "broker",
    "cluster": "broker",
    "failover": "broker",
    "job": "spark",
    "dev": "demo",
    "demo": "demo",
}
"""The extra of a sub-command that needs more than the client."""

_PYDANTICS: Final = (
    ("Input should be a valid integer, unable to parse string as an integer", "no whole number"),
    ("Input should be a valid number, unable to parse string as a number", "no number"),
    ("Input should be ", "it must be "),
    ("Value error, ", ""),
)
"""Typer's words for an invalid value, and the words of `fmq`."""

_COMPLETE: Final = "_FMQ_COMPLETE"
"""Set by the scripts of `--show-completion`: the line to complete is in the environment."""


def build(arguments: Sequence[str]) -> typer.Typer:
    """The command line as these arguments need it."""
    wanted = next((a for a in arguments if not a.startswith("-")), "")
    app = typer.Typer(
        name="fmq",
        help="FMQ: a replicated message broker that keeps serving when machines die.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    app.command("produce")(produce.produce)
    app.command("consume")(consume.consume)
    app.add_typer(topics.app, name="topic")
    app.add_typer(groups.app, name="group")
    app.add_typer(ordered.app, name="ordered")
    app.command("status")(status.status)
    for name, text in _ELSEWHERE.items():
        if name == wanted and _may_mount(name):
            _mount(app, name)
        else:
            app.command(name, help=text)(_not_reached)
    app.command("version")(version)
    return app


def main() -> None:
    """Run the command line; never returns."""
    stand_in()
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        common.discard_output()
        code = NO_READER
    except common.NotWritten as error:  # Python would try again at the exit, and complain
        common.discard_output()
        if code == 0:
            talk(str(error))
            code = FAILED
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """Run the command line; return the exit code. Failures are one line on standard error."""
    try:
        app = build(_line_to_complete() if _completes() else arguments)
        code = app(args=list(arguments), prog_name="fmq", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except common.Terminated as ended:
        return ended.code
    except common.ReaderGone:
        common.discard_output()
        return NO_READER
    except SystemExit as ended:
        if ended.code != 1:  # completion ends so
            return int(ended.code or 0)
        common.discard_output()  # click's own way out when its output has no reader
        return NO_READER
    except Exception as error:  # noqa: BLE001  # the last place that can report it
        return _failed(error, wanted_of(arguments))


def wanted_of(arguments: Sequence[str]) -> str:
    """The extra that the command needs: a missing module may be a part of that extra."""
    return _EXTRAS.get(next((a for a in arguments if not a.startswith("-")), ""), "")


def _failed(error: Exception, wanted: str) -> int:
    if _debug():
        traceback.print_exc()
    usage = getattr(error, "format_message", None)  # click's own, wherever typer keeps it
    if usage is not None:
        if message := str(usage()).rstrip("."):  # nothing: help was asked for by saying nothing
            context = getattr(error, "ctx", None)
            command = context.command_path if context is not None else "fmq"
            for words, ours in _PYDANTICS:
                message = message.replace(words, ours)
            talk(f"{message} (see {command} --help)")
        return USAGE
    cause = _first(error)
    if isinstance(cause, UnicodeEncodeError):  # an argument of bytes that are no text
        talk(f"{cause.object[:99]!r} is no text in UTF-8")
        return USAGE
    if isinstance(cause, ImportError) and (message := what_is_missing(cause, wanted)):
        talk(message)
        return common.UNAVAILABLE
    code = common.exit_code(cause)
    if code is None:
        talk(f"this is a bug: {cause!r}; run it again with --debug and report the output")
        return FAILED
    talk(_error_text(cause) or type(cause).__name__)
    return code


def _error_text(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _debug() -> bool:
    return os.environ.get("FMQ_DEBUG", "") not in ("", "0")


def _version(asked: bool) -> None:
    if asked:
        version()
        raise typer.Exit


def _options(
    debug: Annotated[bool, typer.Option("--debug", help="show where an error came from")] = False,
    _: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_version, help="print the version"),
    ] = False,
) -> None:
    if debug:
        os.environ["FMQ_DEBUG"] = "1"


def _not_reached() -> None:
    """Stands for a sub-command of another module in the list of commands."""
    raise AssertionError("a sub-command is mounted when it is asked for")


def _completes() -> bool:
    return bool(os.environ.get(_COMPLETE))


def _line_to_complete() -> list[str]:
    """The words behind `fmq` that the shell wants completed: zsh and fish, or bash."""
    line = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS", "")
    return line.split()[1:]


def _may_mount(name: str) -> bool:
    """Completion leaves out a sub-command that is not installed; else it is an error later."""
    if not _completes():
        return True
    try:
        import_module(f"fmqcli.commands.{name}")
    except ImportError:
        return False
    return True


def _mount(app: typer.Typer, name: str) -> None:
    sub: Any = import_module(f"fmqcli.commands.{name}").app
    if sub.registered_callback is None and len(sub.registered_commands) == 1:
        app.command(name, help=_ELSEWHERE[name])(sub.registered_commands[0].callback)
    else:
        app.add_typer(sub, name=name)


def version(output: common.OutputOption = common.Output.TABLE) -> None:
    """Print the version."""
    typer.echo(VERSION if output is common.Output.TABLE else json.dumps({"version": VERSION}))


if __name__ == "__main__":
    main()
