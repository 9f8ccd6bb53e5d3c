"""Pure: replication."""
