"""What proves the broker from outside: histories, checks over them, traffic, faults."""
