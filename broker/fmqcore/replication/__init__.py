"""Replication decisions: reconcile two journals, maintain the in-sync set. Pure.

    reconciliation  a master's answer to a slave's Hello
    epoch_history   how far two epoch histories agree
    in_sync_set     which slaves leave the in-sync set and which may enter
    frames          where a run of whole stored batches ends

The policy (which slaves count, how far it holds) is `fmqcore.policy`.
"""
