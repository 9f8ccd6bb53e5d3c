"""The version of FMQ. The build reads it here, before an installer looks for any package.

So a Python that is too old is refused at once: some installers search for packages for minutes
before they check which Python the project requires.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036  # see above
    _running = ".".join(map(str, sys.version_info[:2]))
    raise SystemExit(f"FMQ needs Python 3.11 or later, this is {_running} ({sys.executable})")

VERSION = "0.1.0"
