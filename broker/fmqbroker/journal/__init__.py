"""The broker's journal on a disk: segments, group commit, tail cache, recovery, retention.

Reading order: `journal` (the interface), `head` (appending `drafts`), `flusher` (group commit),
`store` (segment files), `catalog` (offset -> position), `reader`; then `recovery`, `truncation`,
`upkeep`.
All packages above use it; it imports `runtime` and the core only.
"""
