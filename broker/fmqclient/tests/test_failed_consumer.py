"""A consumer that has failed refuses acks: they would reach no broker."""

import pytest

import fmqclient
from fmqclient.tests.double import ClusterDouble
from fmqclient.tests.test_consumer import fill, one
from fmqclient.tests.test_sync import double
from fmqcore.errors import Unsupported

__all__ = ["double", "one"]  # the fixtures


async def test_failed_consumer_refuses_acks_and_nacks(one: ClusterDouble) -> None:
    await fill(one, 2)
    async with fmqclient.connect(one.url) as c, c.consumer("orders", group="billing") as sub:
        first, second = await anext(sub), await anext(sub)
        await first.ack()
        sub._fail(Unsupported("a batch of a newer version"))
        for call in (second.ack, second.nack):
            with pytest.raises(fmqclient.Unavailable, match="a newer version; an ack or nack reac"):
                await call()


def test_failed_sync_consumer_refuses_acks_and_nacks(double: ClusterDouble) -> None:
    with fmqclient.sync.connect(double.url) as c:
        c.producer().send_batch("orders", [b"a", b"b"], group="g1", queue=0)
        with c.consumer("orders", group="billing") as sub:
            first, second = sub.fetch(2)
            first.ack()

            async def fail() -> None:
                sub._consumer._fail(Unsupported("a batch of a newer version"))

            sub._loop.run(fail())
            for call in (second.ack, second.nack):
                with pytest.raises(fmqclient.Unavailable, match="an ack or nack reaches no broker"):
                    call()
            with pytest.raises(fmqclient.FmqError, match="a newer version"):
                sub.commit()
