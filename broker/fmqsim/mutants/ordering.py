"""Mistakes in ordered topics: what a master takes, acknowledges, shows and ends, and the line."""

from typing import Final

from fmqsim.mutants.mutant import Mutant, mutant
from fmqsim.scenario.scene import Focus

SENDING: Final = "fmqcore/ordered/sending.py"
DELIVERY: Final = "fmqcore/ordered/delivery.py"
STANDING: Final = "fmqbroker/ordered/sender_standing.py"
SENDERS: Final = "fmqbroker/ordered/senders.py"
_RULES: Final = "broker/fmqcore/tests/ordered/test_rules.py::"
_BROKER: Final = "broker/fmqbroker/tests/ordered/"
_ORDERED: Final = Focus(ordered=True)
_SWITCHES: Final = (
    "kill at a chain's step",
    "groups in turn",
    "zombie sender",
    "kill the sender",
    "kill",
)
_SWITCHED: Final = Focus(ordered=True, faults=_SWITCHES)

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
        focus=_ORDERED,
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
    mutant(
        "ordered acks by the in-sync set",
        "a member that is out of sync has no copy: the record is on one disk (K14)",
        (
            "fmqbroker/ordered/member_ends.py",
            "        return listed | self._links.successors | {self.me}\n",
            "        return frozenset(self._group.state.value.isr) | {self.me}\n",
        ),
        focus=_SWITCHED,
        seeds=(2,),
    ),
    mutant(
        "an ordered ack without a lease on the chain",
        "a master that is cut off acknowledges after its end was declared unknown (K14)",
        (SENDING, "    if now_ms >= evidence.lease_until_ms:\n", "    if not now_ms:\n"),
        tests=(
            _RULES
            + "test_an_ack_needs_all_members_seal_term_and_lease[chain4-fields4-sealed4-lease]",
        ),
        alone="the sender learns of the closing elsewhere, and takes no ack of that segment",
    ),
    mutant(
        "an ordered batch that is stored is appended again",
        "a repeat after a lost ack lies in the segment twice (K13)",
        (
            SENDING,
            "    return Judgement(Verdict.DUPLICATE, Offset(start + batch.sequence - first))\n",
            "    return Judgement(Verdict.APPEND, end)\n",
        ),
        tests=(_RULES + "test_only_the_next_batch_is_appended[stored]",),
        alone="a stream must break while its batch is stored, and the segment stay open",
    ),
    mutant(
        "batches of a fenced sender are appended",
        "what a sender has on its way when another takes over has the next sequence, too",
        (
            SENDING,
            "    if another or batch.sender_epoch < chain.sender.epoch:\n",
            "    if batch.count < 0:\n",
        ),
        (
            SENDING,
            "    if segment is None or batch.segment != segment.number or segment",
            "    if segment is None or segment",
        ),
        (
            STANDING,
            "        if self.standing is Standing.FENCED:\n            raise",
            "        if self.standing is Standing.FENCED and self.own:\n            raise",
        ),
        focus=Focus(ordered=True, faults=("zombie sender", "pause the sender")),
        seeds=(2,),
    ),
    mutant(
        "the place of a departed sender stays in the line",
        "the next one waits for as long as the broker lives",
        (
            SENDERS,
            "            self._departed[path] = self._coordination.session_id\n"
            "            self._departures.notify()\n",
            "            pass\n",
        ),
        focus=_SWITCHED,
        seeds=(1,),
    ),
    mutant(
        "a segment ends without a SEAL",
        "another term of that master could take and acknowledge more records",
        (
            "fmqcore/ordered/table.py",
            "            (g.IS_MASTER, g.NOT_SEALED, g.HELD_KNOWN),\n"
            "            seal,\n"
            '            "the master of {group} seals segment {segment}",\n',
            "            (g.IS_MASTER, g.NOT_SEALED, g.HELD_KNOWN, *whole),\n"
            "            give,\n"
            "            reason,\n"
            "            t.give_end,\n",
        ),
        focus=_SWITCHED,
        seeds=(0,),
    ),
    mutant(
        "a SEAL is evidence before it is durable",
        "the end is in ZooKeeper, and a power cut takes the SEAL away",
        (
            "fmqbroker/ordered/seal.py",
            "in seals.items() if sealed.end <= durable_end}\n",
            "in seals.items() if durable_end >= 0}\n",
        ),
        (
            "fmqbroker/ordered/seal.py",
            "        await self._journal.wait_durable(appended.end)\n",
            "        assert appended.end\n",
        ),
        focus=_SWITCHED,
        seeds=(0,),
    ),
    mutant(
        "a master alone ends a segment at its own end",
        "its tail lies on one disk, and is delivered as if it were on two",
        (
            "fmqbroker/ordered/held.py",
            "        None: not known, or not yet. `known` fires when it may be.\n"
            '        """\n'
            "        end = self._ends.all_end()\n",
            "        None: not known, or not yet. `known` fires when it may be.\n"
            '        """\n'
            "        end = self._journal.durable_end\n",
        ),
        focus=_SWITCHED,
        seeds=(2,),
    ),
    mutant(
        "records above a sealed end are shown",
        "they are in no segment: a consumer gets them here, and from the next segment (K15)",
        (
            DELIVERY,
            "    end = visible if segment.end is None else min(segment.end[queue], visible)\n",
            "    end = visible\n",
        ),
        focus=_SWITCHED,
        seeds=(4,),
    ),
    mutant(
        "a group shows its segment before the head is there",
        "records of a later segment overtake those of an earlier one",
        (
            DELIVERY,
            "    if segment.group != group:\n        return _nothing(",
            "    own = [s for s in chain.segments if s.group == group]\n"
            "    segment = next((s for s in own if s.number >= numbers[queue]), segment)\n"
            "    if segment.group != group:\n        return _nothing(",
        ),
        focus=_SWITCHED,
        seeds=(0,),
    ),
    mutant(
        "only the segment before counts as delivered",
        "after a segment without records, what lies in the one before comes again",
        (
            "fmqcore/zk/chain.py",
            "            highest = None if last is None else tuple(map(max, highest, last))\n",
            "            highest = last\n",
        ),
        tests=(_RULES + "test_empty_segment_in_between_hides_no_delivered_record",),
        alone="a segment must end without a record, after one with records that got no ack",
    ),
    mutant(
        "a head passes a segment whose end is unknown",
        "what a member that comes back still holds is never delivered (K8)",
        (
            DELIVERY,
            "    while number < newest and segment is not None and segment.end is not None:\n",
            "    while number < newest and segment is not None:\n",
        ),
        (
            DELIVERY,
            "        if reached < segment.end[queue]:\n",
            "        if segment.end is not None and reached < segment.end[queue]:\n",
        ),
        tests=(
            "broker/fmqcore/tests/ordered/test_machine.py"
            "::test_each_row_takes_its_step_once[no end yet]",
        ),
        alone="heads are looked at only when another segment of the group has ended",
    ),
    mutant(
        "a segment is dropped while a consumer group reads it",
        "its rest is never delivered (K7)",
        (
            "fmqcore/ordered/transitions.py",
            "        left = lowest > segment.number\n",
            "        left = lowest >= segment.number\n",
        ),
        focus=_SWITCHED,
    ),
    mutant(
        "a chain is written over another change",
        "a write that comes late takes the chain back (K11)",
        (
            "fmqbroker/cluster/chain_nodes.py",
            "        writes = [Write(node, chain_to_json(after), version)]\n",
            "        writes = [Write(node, chain_to_json(after), version and -1)]\n",
        ),
        focus=Focus(ordered=True, faults=("late write at a chain's step", "zombie sender")),
        seeds=(2,),
    ),
    mutant(
        "a group gives its ends by the chain that it has cached",
        "a batch of an earlier segment comes to lie where the next one starts (K6)",
        (
            "fmqbroker/ordered/group_ends.py",
            "        chain = (await self._chains.read(request.topic)).value\n",
            "        cached = self._chains.of(request.topic_id)\n"
            "        chain = cached or (await self._chains.read(request.topic)).value\n",
        ),
        tests=(
            _BROKER + "test_group_ends.py::test_master_reads_the_chain_before_it_gives_its_ends",
        ),
        alone="a batch must be under way while its master's watch is late, and the group go on",
    ),
)
