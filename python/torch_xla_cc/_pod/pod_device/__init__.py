"""The device process of a rank of the pod: what runs jaxlib's CPU client for it.

It knows nothing of the package and nothing of torch: start.py runs it in an interpreter of its own.
"""
