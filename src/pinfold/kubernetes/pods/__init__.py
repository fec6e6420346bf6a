"""Whole pods, as the kubelet, the API server and manifests know them: the sources, and in which order they are asked.

`wholepods` is what the rest of pinfold uses. Not here: devices and memory (`kubernetes/podresources.py`), refusals.
"""
