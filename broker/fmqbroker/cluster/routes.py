"""Routes in wire form: what clients read of a topic and of a group."""

from collections.abc import Collection

from fmqcore.ids import BrokerId, GroupName, Permission, Role
from fmqcore.zk.group_config import GroupConfig
from fmqcore.zk.group_state import GroupState, Mode
from fmqcore.zk.topic import TopicConfig
from fmqproto.v1 import client_pb2


def granted(state: GroupState, broker: BrokerId) -> Permission:
    """Return what the group's state lets a broker serve, before its configured permission."""
    match state.mode:
        case Mode.MASTER:
            return Permission.FULL if broker == state.master else Permission.NONE
        case Mode.SLAVE_CONSUME:
            return Permission.READ if broker == state.reader else Permission.NONE
        case Mode.HANDOVER | Mode.NEW:
            return Permission.NONE


def topic_route(topic: TopicConfig) -> client_pb2.TopicRoute:
    """Return a topic in wire form."""
    return client_pb2.TopicRoute(
        name=topic.name,
        id=topic.id,
        groups=[
            client_pb2.TopicGroup(
                group=g.group,
                weight=g.weight,
                queues=g.queues,
                properties=dict(g.properties.shared().texts),
            )
            for g in topic.groups
        ],
        properties=dict(topic.properties.shared().texts),
        ordered=topic.ordered,
    )


def group_route(
    group: GroupName, config: GroupConfig, state: GroupState, live: Collection[BrokerId]
) -> client_pb2.GroupRoute:
    """Return a group in wire form, with what each broker may serve."""
    master = state.master or config.master
    return client_pb2.GroupRoute(
        group=group,
        epoch=state.epoch,
        mode=state.mode.value,
        brokers=[
            client_pb2.BrokerRoute(
                id=member.id,
                address=member.address,
                zone=member.zone,
                role=(Role.MASTER if member.id == master else Role.SLAVE).value,
                permission=granted(state, member.id) & member.permission,
                in_sync=member.id == master or member.id in state.isr,
                live=member.id in live,
            )
            for member in config.members
        ],
    )
