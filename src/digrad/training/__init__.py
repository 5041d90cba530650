"""Experiments on real processes, which torchrun starts: the nodes of a run spread over ranks."""
