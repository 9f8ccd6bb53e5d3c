"""Pure: failover."""
