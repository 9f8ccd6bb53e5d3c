"""The objects that make up one group in Kubernetes, in the order they are applied in. Pure."""

from fmqoperator.objects.children import children

__all__ = ["children"]
