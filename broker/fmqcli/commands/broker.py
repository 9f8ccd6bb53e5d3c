"""`fmq broker`: run a broker, change what one may serve.

The one place where the client's command line starts a broker.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from fmqcli.cluster_file import differences, permission_of
from fmqcli.cluster_registry import registry
from fmqcli.commands.cluster import Cluster, ZooKeeper, cluster_name, quietly
from fmqcli.common import talk
from fmqcli.given_names import name_option, name_parser, text_option
from fmqcli.stdio.input_paths import file_to_read, read_table
from fmqcore.errors import InvalidArgument
from fmqcore.ids import BrokerId
from fmqcore.names import NAME_RULE
from fmqcore.zk.group_config import GroupConfig

app = typer.Typer(no_args_is_help=True, help="Run a broker; change what one may serve.")

USAGE = 64
"""Exit status for settings that cannot be (sysexits' EX_USAGE)."""


_PROBLEMS = {
    "missing": "must be given",
    "extra_forbidden": "there is no setting of that name",
    "string_pattern_mismatch": f"must be a name: {NAME_RULE}",
}


@app.callback()
def _app() -> None:
    """Run a broker."""


@app.command()
def run(
    cluster: Annotated[str | None, name_option("cluster", "the cluster's name")] = None,
    group: Annotated[str | None, name_option("group", "the broker group's name")] = None,
    broker: Annotated[
        str | None, name_option("broker", "this broker's name in its group", "--id", "--broker")
    ] = None,
    data_dir: Annotated[
        str | None,
        text_option(
            "directory of the journal",
            "the data directory, with the journal",
            "--data",
            "--data-dir",
            metavar="DIR",
        ),
    ] = None,
    zookeeper: Annotated[
        str | None,
        text_option(
            "address of ZooKeeper",
            "host:port, or several separated by commas; /root after the last",
            metavar="HOSTS",
        ),
    ] = None,
    listen: Annotated[
        str | None,
        text_option(
            "address to listen on",
            "host:port; left out: the address in the group's configuration",
            metavar="HOST:PORT",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=file_to_read,
            help="a .toml or .json file with any of the settings; -: standard input",
        ),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="one setting; `fmq broker settings` lists them"
        ),
    ] = None,
) -> None:
    """Run one broker until SIGTERM. Options win over --set, --set over --config.

    FMQ_CLUSTER and FMQ_ZOOKEEPER are taken where nothing else says cluster or zookeeper.

    Exit status: 0 orderly stop, 64 invalid settings, 65 damaged journal, 69 address to listen on in
    use, 70 fatal error (in the log), 74 disk full or failing, 75 data directory or broker id in
    use, 78 the group's configuration in ZooKeeper does not fit.
    """
    from fmqbroker.app.main import run_broker

    given = read_table(config, "settings") if config is not None else {}
    given |= dict(_pair(change) for change in changes or [])
    named = {
        "cluster": cluster,
        "group": group,
        "broker": broker,
        "data_dir": data_dir,
        "zookeeper": zookeeper,
        "listen": listen,
    }
    given |= {name: value for name, value in named.items() if value is not None}
    _take_environment(given, named)
    raise typer.Exit(run_broker(_settings(given)))


def _take_environment(given: dict[str, Any], named: Mapping[str, str | None]) -> None:
    """FMQ_CLUSTER and FMQ_ZOOKEEPER, for what nothing else says. Raises `InvalidArgument`.

    A file that says another cluster than the environment is no broker to start: one of both is a
    mistake. An option on the command line is meant.
    """
    for setting, variable in (("cluster", "FMQ_CLUSTER"), ("zookeeper", "FMQ_ZOOKEEPER")):
        value = os.environ.get(variable, "")
        if value and setting not in given:
            given[setting] = value
        elif value and not named[setting] and given[setting] != value:
            raise InvalidArgument(
                f"{setting} is {given[setting]!r} in the settings and {value!r} in {variable}: "
                f"take one away, or say which with --{setting}"
            )


@app.command()
def settings() -> None:
    """List every setting with its default."""
    from fmqbroker.runtime.settings import BrokerSettings

    for name, field in BrokerSettings.model_fields.items():
        default = "(required)" if field.is_required() else field.default
        typer.echo(f"{name} = {default}")


@app.command()
def permit(
    broker: Annotated[str, typer.Argument(parser=name_parser("broker"), help="the broker's id")],
    permission: Annotated[
        str, typer.Argument(help="the most that it may serve: FULL, READ, WRITE or NONE")
    ],
    zookeeper: ZooKeeper = None,
    cluster: Cluster = None,
) -> None:
    """Change what a broker may serve at most: FULL, WRITE, READ or NONE."""
    wanted, name = permission_of(permission, "the permission"), cluster_name(cluster)

    def change(config: GroupConfig) -> GroupConfig:
        members = [replace(m, permission=wanted) if m.id == broker else m for m in config.members]
        return replace(config, members=tuple(members))

    async def work() -> tuple[GroupConfig, GroupConfig]:
        async with registry(zookeeper, name) as groups:
            return await groups.edit(BrokerId(broker), change)

    before, after = quietly(work)
    for line in differences(before, after) or [f"{broker}: permission {wanted.name} already"]:
        talk(line)


def _settings(given: dict[str, Any]) -> Any:
    from fmqbroker.runtime.settings import BrokerSettings

    try:
        return BrokerSettings(**given)
    except ValidationError as error:
        for found in error.errors():
            problem = _PROBLEMS.get(found["type"], found["msg"].removeprefix("Value error, "))
            name = ".".join(str(part) for part in found["loc"])
            if name in ("listen", "http_listen"):
                problem = "must be host:port"
            given_text = f"setting {name}: {problem} (given: {given.get(name, 'nothing')})"
            _print_error(given_text if name else problem)
        _print_error("`fmq broker settings` lists them all")
        raise typer.Exit(USAGE) from None


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        _print_error(f"--set {text}: must be NAME=VALUE")
        raise typer.Exit(USAGE)
    return name, value


def _print_error(text: str) -> None:
    typer.echo(f"fmq broker: {text}", err=True)
