"""Replication, pure: reconcile two journals, and who is in sync.

| file | what it is |
|---|---|
| `reconcile.py` | what a master tells a slave that says Hello |
| `history.py` | how far two epoch histories agree |
| `isr.py` | who leaves the in-sync set and who may enter |
| `frames.py` | where a run of whole stored batches ends |

The policy (who counts, how far it holds) is `fmqcore.policy`.
"""
