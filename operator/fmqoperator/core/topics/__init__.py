"""Topics: what a Topic resource is to do next in ZooKeeper."""
