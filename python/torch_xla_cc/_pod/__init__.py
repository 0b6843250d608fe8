"""The pod's device process. What torch_xla loads is txcc_pod.py, beside the package."""
