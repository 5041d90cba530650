"""Virtual time: how long gradients and messages take, and which node acts when.

No tensors here: a calendar never depends on the iterates. Read ``clock`` first, the model; then
``calendar``, which node acts when and reads which message, and ``synchronous``, when steps end.
"""

from digrad.clocks.clock import Clock, clock

__all__ = ["Clock", "clock"]
