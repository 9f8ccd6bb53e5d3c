"""From a seed to a result: simulate, judge by the checks of `e2e.checks`, tell the story."""
