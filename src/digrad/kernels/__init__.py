"""Gradients of many small networks at once: layers, and kernels for a GPU.

``layers`` is the front: modules that ``vmap`` well, which use a kernel where there is one. The
modules named ``*_kernels`` hold Triton code. Read ``layers`` first.
"""
