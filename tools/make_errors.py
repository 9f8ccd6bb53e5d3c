"""Writes `docs/reference/errors.md` from the table of errors in `fmqcore.error_spec`.

    python tools/make_errors.py [--check]

`--check` (in `make check`) fails if the page is not as it would be written.
"""

import inspect
import sys
from pathlib import Path
from typing import Final

from fmqcore.error_spec import ERRORS, ErrorSpec
from fmqcore.errors import ErrorCode, FmqError

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # for a run as a file

from tools.generated_page import update

PAGE: Final = Path(__file__).resolve().parent.parent / "docs" / "reference" / "errors.md"
HEAD: Final = """# Errors

Every error raised on purpose is an `fmqclient.FmqError` with a `code` and a sentence that names
what failed, on what, and what to do. Permissions, resets and timeouts never reach the program: the
client goes to another broker. Generated: `python tools/make_errors.py`.

- *Code*: the number on the wire.
- *A producer*: what it does by itself when a broker answers a batch with the error. The program
  gets the error only when the producer fails the batch, or when `delivery_timeout_s` is over.
- *Stored*: whether the records of the refused batch may be stored all the same.
- *Later*: whether the same request may succeed later without a change.
- *Exit*: the exit status of the command `fmq`.

| error | code | meaning | a producer | stored | later | exit | what to do |
|---|---|---|---|---|---|---|---|
"""
TAIL: Final = """
A cancelled `send` may or may not be stored. A record whose `send` ended with `DeliveryUnknown` may
be stored twice if the program sends it again. `Overloaded` also comes from `send_nowait` beyond the
window, or while sends wait for room. `StaleAssignment` comes from `commit`: a queue went to another
member before its acks were stored, or a seek voided them.

## Exit statuses of `fmq`

| exit status | meaning |
|---|---|
| 0 | done; `fmq status`: every group serves reads and takes messages |
| 1 | the command failed, or a named topic, queue, broker group or consumer group does not exist |
| 2, 3 | `journal` and `job`: damage was found; some data could not be read |
| 64 | wrong usage: invalid options, values or files |
| 69 | no broker answers; `consume -e` does not reach the end; or the extra that the command needs is not installed |
| 65, 70, 74, 75, 78 | `broker run`: the journal is damaged; the broker cannot continue (its log gives the reason); the disk fails or is full; another broker uses the data directory or the id; the configuration in ZooKeeper does not fit |
| 129, 130, 141, 143 | the terminal was closed (not under `nohup`); Ctrl-C; no program reads the output; SIGTERM |
"""  # noqa: E501


def row(spec: ErrorSpec) -> str:
    """Return the table row of one error."""
    code = "" if spec.kind.code is ErrorCode.INTERNAL else f"{int(spec.kind.code)}"
    name = f"`{spec.kind.__name__}`"
    meaning = (inspect.getdoc(spec.kind) or "").splitlines()[0]
    if spec.kind is FmqError:
        name, meaning, code = "any other", "Nothing is certain about it.", "14 and others"
    stored = "maybe" if spec.appended else "no"
    later = "maybe" if spec.transient else "no"
    retry = spec.retry.value
    if not code:  # never on the wire
        retry = stored = ""
    cells = (name, code, meaning, retry, stored, later, str(spec.exit_code), spec.advice)
    return "| " + " | ".join(cells) + " |\n"


def page() -> str:
    """Return the whole page."""
    return HEAD + "".join(map(row, ERRORS)) + TAIL


def main(arguments: list[str]) -> int:
    """See the module; with --check, 1 if the page is not as it would be written."""
    return update(PAGE, page(), __file__, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
