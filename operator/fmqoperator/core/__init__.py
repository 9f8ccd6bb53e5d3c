"""The operator's decisions, as pure functions of observations.

    observation -> facts -> plan: steps, switchovers, promotion, restart_turns -> actions
                         -> status: phases, conditions, root causes, outages

`outlook` returns what a group still waits for; `desired_config` is what ZooKeeper should hold;
`children` are the Kubernetes objects of a group; `jobs` and `topics` plan the other resources.
"""
