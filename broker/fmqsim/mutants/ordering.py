"""Mistakes in ordered topics: what a master takes, acknowledges and shows."""

from typing import Final

from fmqsim.mutants.mutant import Mutant, mutant
from fmqsim.scenario.scene import Focus

SENDING: Final = "fmqcore/ordered/sending.py"
_RULES: Final = "broker/fmqcore/tests/ordered/test_rules.py::"

ORDERING: Final[tuple[Mutant, ...]] = (
    mutant(
        "an ordered ack once the master alone has the batch",
        "the end that its group gives without it lies below what was acknowledged",
        (SENDING, "    if lacking:\n", "    if lacking and not evidence.durable_on:\n"),
        (
            "fmqbroker/ordered/append.py",
            "        return end is not None and stored.end <= end\n",
            "        return self.journal.durable_end >= stored.end\n",
        ),
        focus=Focus(ordered=True),
        seeds=(1,),
    ),
    mutant(
        "a closing segment shows what all members hold",
        "an end that a late write gives may lie below what was shown (K15)",
        (
            "fmqcore/ordered/delivery.py",
            "    opened = segment.number == chain.next_number - 1 and chain.closing is None\n",
            "    opened = segment.number == chain.next_number - 1\n",
        ),
        tests=(_RULES + "test_only_an_open_segment_shows_records_above_no_end",),
        alone="a write of an end must be late while another term shows more",
    ),
    mutant(
        "an ordered batch is appended behind a gap",
        "records before it were refused or lost with a tail: consumers miss them (K13)",
        (
            SENDING,
            "    if batch.sequence == expected:\n",
            "    if batch.sequence >= expected:\n",
        ),
        tests=(_RULES + "test_only_the_next_batch_is_appended",),
        alone="a batch must be refused, and one behind it on the same stream taken",
    ),
)
