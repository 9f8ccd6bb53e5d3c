"""`python -m fmqspark`: the jobs, also as a Spark application's entry point.

The command `fmq` builds on this package and on the client, and adds the jobs that need one.
"""

import sys

from fmqcore.extras import what_is_missing

try:
    import fmq.jobs  # noqa: F401
    from fmqspark.cli.main import main
except ImportError as missing:
    missing_text = what_is_missing(missing, "spark")
    if not missing_text:
        raise
    sys.stderr.write(f"fmq job: {missing_text}\n")
    sys.exit(69)  # sysexits' EX_UNAVAILABLE

if __name__ == "__main__":
    main()
