"""Virtual time: how long gradients and messages take, and who acts when.

No tensors here: a calendar never depends on the iterates. Read ``clock`` first, the model; then
``calendar``, who wakes when and reads which message, and ``waiting``, when steps end that wait.
"""

from digrad.clocks.clock import Clock, clock

__all__ = ["Clock", "clock"]
