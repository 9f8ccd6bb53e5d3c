"""What the operator decides, as pure functions of what it observed.

    observation -> facts -> plan: steps, switchovers, promotion, restart_turns -> actions
                         -> status: phases, conditions, root causes, outages

`outlook` tells what a group still waits for; `desired_config` is what ZooKeeper should hold;
`children` are the Kubernetes objects of a group; `jobs` and `topics` plan the other resources.
"""
