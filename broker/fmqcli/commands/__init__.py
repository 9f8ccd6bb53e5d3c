"""One file per command of `fmq`."""
