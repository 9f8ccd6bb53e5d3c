"""All mutants."""

from typing import Final

from fmqsim.mutants.adapters import ADAPTERS
from fmqsim.mutants.between import BETWEEN
from fmqsim.mutants.consuming import CONSUMING
from fmqsim.mutants.deciding import DECIDING
from fmqsim.mutants.journal import JOURNAL
from fmqsim.mutants.mutant import Mutant
from fmqsim.mutants.ordering import ORDERING
from fmqsim.mutants.replicating import REPLICATING
from fmqsim.mutants.sending import SENDING
from fmqsim.mutants.serving import SERVING

MUTANTS: Final[tuple[Mutant, ...]] = (
    *JOURNAL,
    *REPLICATING,
    *DECIDING,
    *SERVING,
    *CONSUMING,
    *SENDING,
    *BETWEEN,
    *ORDERING,
    *ADAPTERS,
)
