"""The consistency check of one journal's replicas: what is wrong, where, and what was looked at."""
