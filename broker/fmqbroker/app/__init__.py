"""A broker as a process, put together from all parts. No other package imports this one.

    main    real ports, signals, exit status          server   calls -> the part that serves them
    broker  the parts, from start to stop             health   liveness and readiness
    http    probes and metrics over HTTP (content in `http_content`)      metrics  Prometheus

Read `broker` first: its constructor shows the whole broker.
"""
