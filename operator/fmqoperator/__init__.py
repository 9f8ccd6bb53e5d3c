"""The operator: a custom resource becomes a group of brokers (DESIGN §10).

Pure: `resources`, `crd`, `seen`, `actions`, `objects`, `plan`, `status`. The shell is in `shell`.
"""
