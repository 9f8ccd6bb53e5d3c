"""Tests of `fmqcore.zk`."""
