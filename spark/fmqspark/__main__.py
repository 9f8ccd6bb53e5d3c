"""`python -m fmqspark`: the jobs, also as a Spark application's entry point.

The front door `fmq` stands above this package and above the client: it puts in what needs one.
"""

import fmq.jobs  # noqa: F401
from fmqspark.cli import main

if __name__ == "__main__":
    main()
