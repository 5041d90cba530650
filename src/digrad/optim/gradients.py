"""Whether this step's gradients can be used, decided before anything is sent."""

from collections.abc import Iterator

import torch
from torch import Tensor

from digrad.base.errors import DigradError, ParameterError, message
from digrad.optim.layout import Layout, ParameterSpan


class GradientError(DigradError, ArithmeticError):
    """A gradient that is not finite."""


def refuse_none(layout: Layout, first: int, step: int) -> None:
    """Refuse a step of a node none of whose parameters has a gradient: backward was forgotten."""
    for row, model in enumerate(layout.models):
        if all(parameter.grad is None for parameter in model):
            what = f"no parameter of node {first + row} has a gradient at step {step}"
            hint = "call loss.backward() before step(); for a step without data of this node, "
            hint += "opt.zero_grad(set_to_none=False)"
            raise ParameterError(message(what, hint=hint))


def unusable(layout: Layout) -> dict[int, str]:
    """Return the own nodes whose gradients are not finite, with the first such parameter.

    One sum over each gradient settles the ordinary case: it is finite only if all of it is.
    """
    sums = [g.sum() for row in range(len(layout.models)) for _, g in _given(layout, row)]
    if not sums or bool(torch.stack(sums).isfinite().all()):
        return {}
    found = ((row, _first_bad(layout, row)) for row in range(len(layout.models)))
    return {row: name for row, name in found if name}


def _first_bad(layout: Layout, row: int) -> str:
    given = _given(layout, row)
    return next((slot.name for slot, g in given if not g.isfinite().all()), "")


def _given(layout: Layout, row: int) -> Iterator[tuple[ParameterSpan, Tensor]]:
    for slot, parameter in zip(layout.slots, layout.models[row], strict=True):
        g = parameter.grad
        if g is None:
            continue
        if g.layout != torch.strided:
            raise ParameterError(
                message(
                    f"the gradient of {slot.name} is sparse",
                    hint="use dense gradients, for example nn.Embedding(..., sparse=False)",
                )
            )
        yield slot, g


def stop_text(nodes: dict[int, str], step: int) -> str:
    """Say which gradients were not finite, for this rank's error and for the other ranks."""
    where = ", ".join(f"{name} of node {node}" for node, name in nodes.items())
    return f"non-finite gradient in {where} at step {step}"


def stopped(nodes: dict[int, str], step: int) -> GradientError:
    """Return the error for gradients that are not finite."""
    return GradientError(
        message(
            stop_text(nodes, step),
            hint='take a smaller step, clip gradients, or pass nonfinite="skip"',
        )
    )
