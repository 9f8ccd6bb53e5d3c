"""What a BrokerGroup's status says, from what was seen. Pure."""

from fmqoperator.resources import Json
from fmqoperator.seen import Observation


def status(seen: Observation) -> Json:
    """The whole `status`, as JSON. Equal input, equal output.

    Conditions keep their `lastTransitionTime` while their status stays. The shell writes it (merge
    patch of the status subresource) only if it differs from what is there, and, if nothing but
    lags and ends differ, at most every five seconds.
    """
    raise NotImplementedError
