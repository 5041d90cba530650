"""One product W X whose rows travel in a code: few bytes, which stand for rows."""

from contextlib import AbstractContextManager

import torch
from torch import Tensor

from digrad.algorithms.contract import Code
from digrad.engines.processes.exchange import RankMatrix, rows_at
from digrad.engines.transports.transport import Batch, Transport


class CodedExchange:
    """One mixing under way; a row's bytes travel as a whole, since they are few.

    Args:
        rows: the own rows as the others will decode them.
        naming: a block for all that can fail; see ``faults``.
        numbers: by rank, the numbers by which nodes draw, if those are not their ranks.
    """

    def __init__(
        self,
        mixing: RankMatrix,
        transport: Transport,
        rows: Tensor,
        code: Code,
        tag: int,
        naming: AbstractContextManager[None],
        numbers: Tensor | None = None,
    ) -> None:
        self._numbers = numbers
        self._mixing, self._rows, self._code, self._naming = mixing, rows, code, naming
        lead, size = tuple(rows.shape[:-2]), code.row_bytes(rows)
        with naming:
            content = code.bytes() if mixing.packets else None
            outgoing = [
                (peers, rows_at(content, places))
                for peers, places in mixing.packets
                if content is not None
            ]
            incoming = [(peer, (*lead, count, size)) for peer, count in mixing.expected]
            batch = Batch(outgoing, incoming, torch.uint8, tag)
            self._sending, self._receiving = transport.post(batch)

    def finish(self, out: Tensor) -> Tensor:
        """Wait for what is under way and return the product in ``out``."""
        mixing, rows = self._mixing, self._rows
        mixing.own.put(rows, out)
        if mixing.local is not None:
            mixing.local.add(rows, out)
        with self._naming:
            arrivals = zip(mixing.arrivals, mixing.route.arrivals, self._receiving, strict=True)
            for share, arrival, receiving in arrivals:
                content = receiving.wait().to(out.device)
                nodes = torch.from_numpy(arrival.nodes)
                nodes = nodes if self._numbers is None else self._numbers[nodes]
                like = out.new_empty(()).expand(*out.shape[:-2], len(nodes), out.shape[-1])
                share.add(self._code.rows(content, like, nodes), out)
                receiving.release()
            for sending in self._sending:
                sending.wait()
        return out
