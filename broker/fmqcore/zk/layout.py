"""The paths of ZooKeeper nodes, one function a node. Pure."""

from fmqcore.ids import BrokerId, GroupName


def cluster_root(cluster: str) -> str:
    """The parent of everything that belongs to one cluster."""
    return f"/fmq/{cluster}"


def groups_node(cluster: str) -> str:
    """The parent of the groups."""
    return f"{cluster_root(cluster)}/groups"


def group_node(cluster: str, group: GroupName) -> str:
    """One group; holds config, state and live."""
    return f"{groups_node(cluster)}/{group}"


def config_node(cluster: str, group: GroupName) -> str:
    """The group's `GroupConfig`."""
    return f"{group_node(cluster, group)}/config"


def state_node(cluster: str, group: GroupName) -> str:
    """The group's `GroupState`."""
    return f"{group_node(cluster, group)}/state"


def live_node(cluster: str, group: GroupName) -> str:
    """The parent of the ephemeral nodes of the group's live brokers."""
    return f"{group_node(cluster, group)}/live"


def live_broker_node(cluster: str, group: GroupName, broker: BrokerId) -> str:
    """One broker's `LiveBroker`."""
    return f"{live_node(cluster, group)}/{broker}"


def topics_node(cluster: str) -> str:
    """The parent of the topics; its data has the next topic id."""
    return f"{cluster_root(cluster)}/topics"


def topic_node(cluster: str, topic: str) -> str:
    """One `TopicConfig`."""
    return f"{topics_node(cluster)}/{topic}"


def chains_node(cluster: str, group: GroupName) -> str:
    """The group's `LastClosing`; its version is what leases on ordered segments look at."""
    return f"{group_node(cluster, group)}/chains"


def ordered_node(cluster: str) -> str:
    """The parent of the ordered topics."""
    return f"{cluster_root(cluster)}/ordered"


def chain_node(cluster: str, topic: str) -> str:
    """One ordered topic's `Chain`."""
    return f"{ordered_node(cluster)}/{topic}"


def senders_node(cluster: str, topic: str) -> str:
    """The parent of the line of senders: ephemeral sequential nodes."""
    return f"{chain_node(cluster, topic)}/senders"
