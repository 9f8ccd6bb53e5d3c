"""A broker as a process: everything is put together here, and nothing imports this package.

    main    real ports, signals, exit status          server   calls -> the part that serves them
    broker  the parts, from start to stop             health   liveness and readiness
    http    probes and metrics over HTTP (content in `http_content`)      metrics  Prometheus

Read `broker` first: its constructor is the picture of the whole broker.
"""
