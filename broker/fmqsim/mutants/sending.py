"""Mistakes of a producer: what it sends again, and where."""

from typing import Final

from fmqsim.mutants.mutant import Mutant, mutant

TOPIC: Final = "fmqclient/topic.py"

SENDING: Final[tuple[Mutant, ...]] = (
    mutant(
        "a one-way batch that was given up is answered",
        "its stream took it when nobody waited any more, and the producer ends",
        (
            "fmqclient/link.py",
            "            if flight not in lane.flights:\n"
            "                continue  # given up while the stream took nothing\n",
            "",
        ),
        tests=(
            "broker/fmqclient/tests/test_producer_link.py::test_a_batch_that_was_given_up_in_a_stalled_stream_ends_nothing",
        ),
        alone="known seeds find it (`test_seeds.py`); this is quicker",
    ),
    mutant(
        "a late ack of what was given up counts",
        "its producer ends, though something else is under way on that stream",
        (
            "fmqclient/link.py",
            "                if flight not in lane.flights:\n"
            "                    continue  # given up meanwhile\n",
            "",
        ),
        tests=(
            "broker/fmqclient/tests/test_producer_link.py::test_an_ack_that_comes_when_its_batch_was_given_up_ends_nothing",
        ),
        alone="it must come between two deadlines",
    ),
    mutant(
        "records are placed anew in any order",
        "groups come and go, and what is older follows what is younger of the same key",
        (TOPIC, "        moved.sort(key=lambda entry: entry[0][6])\n", ""),
        tests=(
            "broker/fmqclient/tests/test_topic.py::test_what_is_placed_anew_goes_in_the_order_in_which_it_was_handed_in",
        ),
        alone="the group that was there first must hold what is younger",
    ),
    mutant(
        "what is not answered follows to another group",
        "it is refused late, and comes behind what was handed in after it",
        (
            TOPIC,
            "        for flight in self._awaited:\n            flight.stays = True\n",
            "",
        ),
        tests=(
            "broker/fmqclient/tests/test_topic.py::test_what_is_not_answered_in_time_stays_where_it_was_sent",
        ),
        alone="a refusal that takes longer than the hold is rare",
    ),
)
