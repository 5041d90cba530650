"""Whether this step's gradients can be used, decided before anything is sent."""

from collections.abc import Iterator

import torch
from torch import Tensor

from digrad.base.errors import DigradError, ParameterError
from digrad.optim.layout import Layout, ParameterSpan
from digrad.optim.rows import Rows


class GradientError(DigradError, ArithmeticError):
    """A gradient that is not finite."""


def nodes_to_skip(rows: Rows, t: int, *, stop: bool) -> list[int]:
    """Return the own nodes whose gradients are not finite; refuse them if ``stop``.

    Gradients that are missing, or of parameters in other memory, are refused.
    """
    layout, first = rows.layout, rows.engine.rows.start
    layout.check_in_place(rows.models)
    _check_backward(layout, first, t)
    bad = _nonfinite(layout)
    if bad and stop:
        where = ", ".join(f"{name} of node {first + row}" for row, name in bad.items())
        what = f"non-finite gradient in {where} at step {t}"
        hint = 'take a smaller step, clip gradients, or pass nonfinite="skip"'
        raise GradientError(what, hint=hint)
    return list(bad)


def _check_backward(layout: Layout, first: int, step: int) -> None:
    """Refuse a step of a node none of whose parameters has a gradient: backward was forgotten."""
    for row, model in enumerate(layout.models):
        if all(parameter.grad is None for parameter in model):
            what = f"no parameter of node {first + row} has a gradient at step {step}"
            hint = "call loss.backward() before step(); for a step without data of this node, "
            hint += "opt.zero_grad(set_to_none=False)"
            raise ParameterError(what, hint=hint)


def _nonfinite(layout: Layout) -> dict[int, str]:
    """Return the own nodes whose gradients are not finite, with the first such parameter.

    One sum over each gradient settles the ordinary case: it is finite only if all of it is.
    """
    sums = [g.sum() for row in range(len(layout.models)) for _, g in _gradients(layout, row)]
    if not sums or bool(torch.stack(sums).isfinite().all()):
        return {}
    found = ((row, _first_bad(layout, row)) for row in range(len(layout.models)))
    return {row: name for row, name in found if name}


def _first_bad(layout: Layout, row: int) -> str:
    bad = (slot.name for slot, g in _gradients(layout, row) if not g.isfinite().all())
    return next(bad, "")


def _gradients(layout: Layout, row: int) -> Iterator[tuple[ParameterSpan, Tensor]]:
    for slot, parameter in zip(layout.slots, layout.models[row], strict=True):
        g = parameter.grad
        if g is None:
            continue
        if g.layout != torch.strided:
            hint = "use dense gradients, for example nn.Embedding(..., sparse=False)"
            raise ParameterError(f"the gradient of {slot.name} is sparse", hint=hint)
        yield slot, g
