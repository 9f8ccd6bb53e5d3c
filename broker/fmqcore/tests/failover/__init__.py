"""Tests of `fmqcore.failover`."""
