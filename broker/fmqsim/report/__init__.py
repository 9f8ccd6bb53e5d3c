"""From a seed to a result: simulate, judge by the checks of `e2e.checks`, write the story."""
