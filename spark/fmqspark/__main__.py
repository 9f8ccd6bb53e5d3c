"""`python -m fmqspark`: the jobs, also as a Spark application's entry point.

The front door `fmq` stands above this package and above the client: it puts in what needs one.
"""

import sys

from fmqcore.extras import what_is_missing

try:
    import fmq.jobs  # noqa: F401
    from fmqspark.cli.main import main
except ImportError as missing:
    said = what_is_missing(missing, "spark")
    if not said:
        raise
    sys.stderr.write(f"fmq job: {said}\n")
    sys.exit(69)  # sysexits' EX_UNAVAILABLE

if __name__ == "__main__":
    main()
