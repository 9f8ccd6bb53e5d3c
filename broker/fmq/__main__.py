"""`python -m fmq`."""

from fmq import main

main()
