"""The Kubernetes objects that make up one group, in the order they are applied in.

`group` lists them; `pod` is a broker's Pod, `names` their names and labels, `volumes` and
`ownership` what happens to claims, `drift` whether an object is as it should be.
"""
