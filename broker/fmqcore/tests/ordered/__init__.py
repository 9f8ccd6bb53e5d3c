"""Tests of ordered topics. `world` and `events` are the small world that `ways` explores."""
