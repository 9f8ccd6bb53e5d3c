"""The command line without a cluster: formats, usage, exit codes, lazy imports."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fmqcli import common, main
from fmqcli.commands import produce, topics
from fmqcli.common import moment
from fmqcli.output.formats import as_json, formatter, iso
from fmqclient.consumer.ack_tracker import AckTracker
from fmqclient.consumer.message import Acker, DeliveredBatch, Message
from fmqclient.tests.journal_directory import write
from fmqcore.batch.columns import encode, encode_headers
from fmqcore.batch.crc import crc32c
from fmqcore.batch.header import BatchType, encode_header, padding
from fmqcore.errors import InvalidArgument
from fmqcore.ids import Epoch, GroupName, Offset, Position, TopicId
from fmqcore.tests.journal.writer import sample
from fmqcore.zk.topic import TopicConfig, TopicGroup
from fmqproto.v1 import client_pb2


class Heard(Acker):
    """Count acks without their messages."""

    epoch = Epoch(1)


def message(value: bytes = b"v\xff", key: bytes = b"42") -> Message:
    headers = encode_headers({"a": "1", "b": b"\x80"})
    attrs, payload = encode([b"before", value], [b"", key], [b"", b"tag"], [b"", headers])
    raw, _ = encode_header(
        type=BatchType.DATA,
        position=Position(0),
        epoch=Epoch(1),
        prev_header_crc=0,
        payload_len=len(payload),
        payload_crc=crc32c(payload),
        store_ms=1_700_000_000_123,
        attrs=attrs,
        topic_id=TopicId(1),
        record_count=2,
        base_offset=Offset(6),
    )
    delivery = client_pb2.Delivery(
        queue_id=3,
        generation=1,
        first_offset=7,
        end_offset=8,
        delivery_count=2,
        batch=raw + payload + padding(len(payload)),
    )
    return Message(DeliveredBatch("orders", AckTracker("g1", 3), Heard(), delivery), 7)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (r"%o %k %v\n", b"7 42 v\xff\n"),
        (r"%t/%g/%q\t%T %I", b"orders/g1/3\t1700000000123 2023-11-14T22:13:20.123+00:00"),
        (r"%h|%a|%c|%K|%V|%%", b"a=1,b=\x80|tag|2|2|2|%"),
        (r"\x41\\\0", b"A\\\0"),
    ],
)
def test_record_formats_are_printed(text: str, printed: bytes) -> None:
    assert formatter(text)(message()) == printed


@pytest.mark.parametrize("text", ["%z", "%", r"\q", "\\"])
def test_unknown_format_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="is no code"):
        formatter(text)


def test_time_beyond_the_calendar_is_printed_as_a_number() -> None:
    assert iso(1_700_000_000_123) == "2023-11-14T22:13:20.123+00:00"
    assert iso(2**63) == str(2**63)


def test_json_distinguishes_bytes_from_text() -> None:
    line = as_json(message())
    assert b'"value_base64": "dv8="' in line
    assert b'"key": "42"' in line
    assert b'"headers": {"a": "1", "b_base64": "gA=="}' in line
    assert b'"value": "caf\xc3\xa9"' in as_json(message("café".encode()))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [(":", ":"), (r"\t", "\t"), ("→", "→"), (r"→\n", "→\n"), (r"\u2192", "→")],
)
def test_key_separator_is_used_as_given(text: str, wanted: str) -> None:
    assert produce._separator(text) == wanted.encode()


def test_time_arguments_are_parsed() -> None:
    assert moment("earliest") == "earliest"
    assert moment("1700000000123") == 1_700_000_000_123
    assert moment("2026-01-01T00:00:00+00:00").timestamp() == 1_767_225_600  # type: ignore[union-attr]
    for none in ("yesterday", "9" * 5000):
        with pytest.raises(InvalidArgument, match="neither 'earliest' nor"):
            moment(none)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nope"], common.USAGE, "No such command 'nope'"),
        (["produce"], common.USAGE, "Missing argument"),
        (["topic", "create", "a", "-b", "http://x"], common.USAGE, "begins with fmq://"),
        (["topic", "create", "t", "-g", "g1:x"], common.USAGE, "GROUP:WEIGHT"),
        (["topic", "create", "t", "--ordered"], common.USAGE, "needs two groups or more"),
        (["topic", "create", "t", "--ordered", "-g", "g1"], common.USAGE, "at once: --groups"),
        (["topic", "create", "t", "--groups", "g1,g2"], common.USAGE, "is for ordered topics"),
        (["topic", "create", "t", "--allow-single"], common.USAGE, "--allow-single is for ordered"),
        (["topic", "create", "t", "--ordered", "--groups", "g1,"], common.USAGE, "GROUP[:WEIGHT],"),
        (["topic", "create", "t", "--ordered", "--groups", "a:x,b"], common.USAGE, "g1,g2:3"),
        (
            ["topic", "create", "t", "--ordered", "--groups", "g1,g1"],
            common.USAGE,
            "g1 is given twice",
        ),
        (["topic", "alter", "t", "--groups", "g1,g2", "-q", "2"], common.USAGE, "leave --queues"),
        (["ordered", "release", "t", "x"], common.USAGE, "'segment': no whole number"),
        (["ordered", "release", "t", "0", "-y"], common.USAGE, "'segment': it must be greater"),
        (["consume", "t", "--format", "%z"], common.USAGE, "'%z' is no code"),
        (["consume", "t", "--from", "then"], common.USAGE, "neither 'earliest'"),
        (["produce", "t", "-H", "x"], common.USAGE, "NAME=VALUE"),
        (["journal", "dump", "/nope"], common.USAGE, "/nope is no directory"),
        (["produce", "t", "-K", "\\"], common.USAGE, "is no text"),
        (["produce", "t", "-K", ""], common.USAGE, "is no text"),
        (["produce", "t", "-k", "\udcff"], common.USAGE, "'\\udcff' is no text in UTF-8"),
        (["produce", "t", "--acks", "none"], common.USAGE, "--acks 'none' is none of replicated"),
        (["produce", "t", "--queue", "-1"], common.USAGE, "'--queue': it must be greater"),
        (["produce", "t", "--queue", "x"], common.USAGE, "'--queue': no whole number"),
        (["produce", "t", "-H", "n" * 70000 + "=v"], common.USAGE, "a name has at most 65,535"),
        (["topic", "create", "t", "-q", "0"], common.USAGE, "it must be greater than or equal"),
        (["topic", "create", "t", "-q", "1025"], common.USAGE, "less than or equal to 1024"),
        (["topic", "create", "t", "-g", "g1:9999999999"], common.USAGE, "GROUP:WEIGHT"),
        (["topic", "list", "-o", "xml"], common.USAGE, "'--output' / '-o': 'xml' is not one of"),
        (["group", "seek", "g", "t", "--offset", "-1"], common.USAGE, "equal to 0"),
        (["consume", "t", "-g", ""], common.USAGE, "'' is no name for a consumer group"),
        (["group", "delete", ""], common.USAGE, "'' is no name for a consumer group"),
        (["failover", "g", "--to", "b", "--timeout", "-1"], common.USAGE, "equal to 0"),
        (["failover", "../g", "--to", "b", "-c", "c"], common.USAGE, "is no name for a group"),
        (["dev", "up", "--slaves", "0", "--how-many", "one"], common.USAGE, "never be met"),
        (["topic", "list", "-b", "fmq://a b:1"], common.USAGE, "is not host:port"),
        (["topic", "list", "-b", "fmq://[::1"], common.USAGE, "is not host:port"),
        (["produce", "t", "-f", "/nope"], common.FAILED, "fmq: /nope: No such file or directory"),
        (["produce", "t", "-n", "-1"], common.USAGE, "equal to 0"),
        (["produce", "t", "--rate", "-1"], common.USAGE, "equal to 0"),
        (["consume", "t", "-n", "-1"], common.USAGE, "equal to 0"),
        (["dev", "up", "--port", "99999"], common.USAGE, "equal to 65535"),
        (["group", "seek", "g", "t"], common.USAGE, "either --to or --offset"),
        (["group", "seek", "g", "t", "--to", "latest", "-q", "x"], common.USAGE, "GROUP/QUEUE"),
    ],
)
def test_mistakes_are_one_line(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    monkeypatch.setattr(sys, "stdin", open("/dev/null"))  # noqa: SIM115
    assert main.run(arguments) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("fmq: ")


def test_ctrl_c_while_it_is_loaded_is_quiet() -> None:
    script = (
        "import sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'fmqcli.commands.consume': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "sys.argv = ['fmq', 'version']\n"
        "from fmq import main\n"
        "main()\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (common.INTERRUPTED, b"", b"")


@pytest.mark.parametrize(
    ("command", "message"),
    [("consume t >&-", b"without being printed"), ("produce t <&-", b"standard input is closed")],
)
def test_closed_output_is_refused(command: str, message: bytes) -> None:
    """Messages are not acknowledged when their output cannot be seen."""
    line = f"{sys.executable} -m fmq {command}"
    ended = subprocess.run(line, shell=True, stderr=subprocess.PIPE, check=False)
    assert ended.returncode == common.USAGE
    assert message in ended.stderr


@pytest.mark.parametrize("command", ["version", "--help", "topic --help", "broker settings"])
def test_closed_output_pipe_ends_quietly(command: str) -> None:
    """`fmq ... | head` has read enough: also where click itself prints."""
    read, write = os.pipe()
    os.close(read)
    line = [sys.executable, "-m", "fmq", *command.split()]
    ended = subprocess.run(line, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (ended.returncode, ended.stderr) == (common.NO_READER, b"")


@pytest.mark.parametrize(
    ("command", "reason", "code"),
    [
        ("version >/dev/full", "No space left", common.FAILED),
        ("topic --help >/dev/full", "No space left", common.FAILED),  # click prints by itself
        ("version >&-", "it is closed", common.FAILED),
        ("journal dump {} >/dev/full", "No space left", 3),
    ],
)
def test_unwritable_output_is_reported_once(
    tmp_path: Path, command: str, reason: str, code: int
) -> None:
    """Python would retry at the exit, complain, and end with its own status."""
    writer = sample(batches=3)
    write(tmp_path, writer.files(writer.checkpoint()))
    line = f"{sys.executable} -m fmq {command.format(tmp_path)}"
    ended = subprocess.run(line, shell=True, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.stderr.startswith("fmq: standard output could not be written")
    assert reason in ended.stderr
    assert (ended.returncode, ended.stderr.count("\n")) == (code, 1)


@pytest.mark.parametrize("arguments", [[], ["topic"], ["dev"]])
def test_no_arguments_print_help(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert main.run(arguments) == common.USAGE
    captured = capsys.readouterr()
    assert "Commands" in captured.out
    assert captured.err == ""


def test_the_version_in_both_ways(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--version"]) == main.run(["version"]) == 0
    first, second = capsys.readouterr().out.split()
    assert first == second


def test_unreachable_brokers_give_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["topic", "list", "-b", "fmq://127.0.0.1:1"]) == common.UNAVAILABLE
    assert capsys.readouterr().err == (
        "fmq: no broker answers at 127.0.0.1:1 (connection refused, nothing listens there): "
        "check the addresses, and that the cluster is up\n"
    )


def test_a_bug_is_one_line_too_but_with_debug(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(main, "build", broken)
    monkeypatch.setenv("FMQ_DEBUG", "")
    assert main.run(["version"]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    monkeypatch.setenv("FMQ_DEBUG", "1")
    assert main.run(["version"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_produce_needs_no_broker_and_no_java() -> None:
    script = (
        "import sys; from fmqcli.main import build; build(['produce', 't']);"
        "sys.exit(any(m in sys.modules for m in ('kazoo', 'pyspark', 'grpc', 'fmqbroker')))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    main.run(["--help"])
    text = capsys.readouterr().out
    wanted = "produce consume topic group status broker demo dev journal version"
    assert all(f" {name} " in text for name in wanted.split())


def test_topic_list_names_a_group_that_left_the_chain() -> None:
    groups = (TopicGroup(GroupName("g1"), 1, weight=0), TopicGroup(GroupName("g2"), 1, weight=2))
    topic = TopicConfig("t", TopicId(1), groups, ordered=True)
    assert topics._where(topic) == "ordered over g1 (left the chain), g2 (weight 2)"
    ordinary = TopicConfig("t", TopicId(1), groups)
    assert topics._where(ordinary) == "g1 (1 queue, weight 0), g2 (1 queue, weight 2)"
