"""The objects that make up one group in Kubernetes, in the order in which they are applied. Pure."""

from fmqoperator.objects.children import children

__all__ = ["children"]
