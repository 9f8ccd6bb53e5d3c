"""Seeds that once failed, with the reason; they must pass for ever.

A seed means the same run only while nothing that draws from it changes, so each defect also has a
test beside the repaired code. These runs keep the original paths covered.
"""

from dataclasses import dataclass

import pytest

from e2e.checks.verdict import Outcome
from fmqsim.mutants.mutant import POWER
from fmqsim.report.run import Result, forked, simulate
from fmqsim.scenario.scene import Focus


@dataclass(frozen=True, slots=True)
class Found:
    """A seed and its finding."""

    seed: int
    reason: str
    focus: Focus | None = None


FOUND = [
    Found(
        500,
        "a slave that took over and lagged confirmed acks of what it did not have",
        Focus(settings=(("takeover_wait_ms", 500),)),
    ),
    Found(95, "the last slave left the set, and in its journal alone lay what was acknowledged"),
    Found(214, "a roll for a new term stood where a slave had something else of the old epoch"),
    Found(246, "a calm that started while clients were still looking for their brokers"),
    Found(181, "a new reader that knew less was taken for a seek: acked messages came again"),
    Found(
        60037,
        "a wish promoted a slave whose master was only away, and had acknowledged by itself",
        Focus(moves=True),
    ),
    Found(
        6680929341, "a slave back with all there is never counted as sent, so nothing was stored"
    ),
    Found(6680929251, "the check of order took what was lost for stored"),
    Found(
        7512206431, "a one-way batch that was given up while its stream stood ended the producer"
    ),
    Found(
        7512206767, "a clock set a day ahead let SNAP forget producers, retries were stored twice"
    ),
    Found(7512206494, "policy none after a lost cache: a person must empty the slaves"),
    Found(910000730, "a reader that was wedged, and back long after: what it stored last is gone"),
    Found(930000333, "who waited in a commit went on with what a reader without power gave it"),
    Found(930000521, "a calm that started before the reset connections were noticed"),
    Found(940000541, "a Hello that a stalled link held up took the place of a newer stream"),
    Found(950000053, "the same, with two slaves behind stalled links"),
    Found(960002682, "what a reader's own retention had deleted was missed by the check"),
    Found(960002770, "a session was ended early, and its lease went on behind a cut network"),
    Found(980000887, "a reader that was sent more of an epoch forgot its acks and reported OK"),
    Found(980001207, "the check of order took for stored what was lost, and deleted since"),
    Found(980002656, "the check took it for flushed, though its broker was killed before that"),
    Found(980002693, "a journal was recreated far ahead, and its keeper looped for ever"),
    Found(990000500, "what one reader's retention had deleted, the next one delivered, rightly"),
    Found(990001142, "a master with an empty disk gave up what its reader, away for long, had"),
    Found(10002, "a master that was lost right after it opened took the hand-over with it"),
    Found(1010001392, "power gone: a slave that had lost it, too, was proof that no broker had it"),
    Found(1020005624, "power gone, and a start that failed in order: nothing was back by that"),
    Found(1020005992, "what came between a seek and its late answer came again"),
    Found(1020007226, "a reader was waited for from a time at which it had still served"),
    Found(1040000040, "a seek started while the one broker that it knew was away for long"),
    Found(1050000168, "a calm that started while the last of a slow network was under way"),
    Found(1090004519, "acks in the reader's journal alone were neither the master's nor kept"),
    Found(1090004210, "a reader that lost its disk claimed again, and handed over less"),
    Found(1100001729, "a seek came back with its master, and made later acks void"),
    Found(1100002472, "a member that waited went on with what a frozen reader had given it"),
    Found(1140003837, "a seek came back with its master, and commit() reported OK for later acks"),
    Found(
        1140004439, "a slave whose disk had been full was in sync as its master had not noticed yet"
    ),
    Found(1180004785, "a seek was made when its group was drained and everybody had left"),
    Found(1190002408, "what a reader had committed and was taken back counted as committed"),
    Found(1210000492, "a broker was set up to promise for two heartbeats, and one came late"),
    Found(1190003196, "power went while a slave truncated what no other broker had"),
    Found(1160000190, "what a reader handed over was gone with its disk, its master being away"),
    Found(1150006213, "two slaves were taken out at a time, and one of them for good"),
    Found(1130000854, "a second disk was hurt while an emptied master still had nothing"),
    Found(1070000089, "a session was ended early of a broker that stood still, and could not hear"),
    Found(1020003950, "a record that was lost unanswered was stored again at its old offset"),
    Found(1220001552, "a batch that was given up came over its old connection after newer ones"),
    Found(1270003061, "a calm that started while a write of a disk that had stalled had not ended"),
    Found(1280006482, "the check of order did not know that a seek to what is deleted jumps, too"),
    Found(1290007149, "a reader's retention deleted what its master had lost with its power"),
    Found(6386310128, "a batch that a reader had shown ended as not stored: another term's answer"),
    Found(1340006660, "a seek went to the end of a reader that had less than it asked for"),
    Found(9100897528, "what a network had lost for a moment a slave lacked when all were stopped"),
    Found(1010001957, "a calm that started while a client waited for a broker without power"),
    Found(
        5984570011,
        "policy sent, a master declared lost: what was only sent is its alone, a person empties it",
        Focus(moves=True, topics=True),
    ),
    Found(
        7710044264,
        "the check of offsets counted acks that were sent after their messages were lost",
        Focus(1, None, (), (*POWER, "set clock")),
    ),
]


@pytest.mark.parametrize("found", FOUND, ids=lambda found: str(found.seed))
def test_regression_seeds_pass(found: Found) -> None:
    def run(seed: int) -> Result:
        return simulate(seed, focus=found.focus)

    (result,) = forked([found.seed], 1, run)
    assert result.outcome is not Outcome.BROKEN, f"{found.reason}\n{result.story}"
