"""Every node on one device: mixing is a matrix product."""

import warnings

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from digrad.algorithms.contract import Change, add_changes
from digrad.networks.registry import NetworkLike, as_network

SPARSE_N = 128  # below it a dense product is faster whatever the number of links
SPARSE_SHARE = 0.05  # of nonzero weights, above which a dense product is faster


class MatrixMixer:
    """A mixer for all nodes of a network: two matrices to multiply with."""

    _pull: "WeightMatrix"
    _push: "WeightMatrix"

    def pull(self, rows: Tensor, /, *changes: Change, of: str = "") -> Tensor:
        """R(X + Σ αD)."""
        return self._pull(rows, *changes)

    def push(self, rows: Tensor, /, *changes: Change, of: str = "") -> Tensor:
        """C(X + Σ αD)."""
        return self._push(rows, *changes)

    def mean(self, rows: Tensor, /) -> Tensor:
        """Every row replaced by the mean of all."""
        return rows.mean(-2, keepdim=True).expand_as(rows)

    @property
    def is_sparse(self) -> bool:
        """Whether a product is sparse, which a compiler cannot fuse."""
        return bool(self._pull.is_sparse or self._push.is_sparse)


class Simulator(MatrixMixer):
    """All nodes here; leading axes are free, so (trials, nodes, dim) runs all trials at once.

    Large sparse networks stay sparse: a step then costs links x dim, not n² x dim.
    """

    def __init__(
        self,
        net: NetworkLike,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        net = as_network(net)
        self.n = net.n
        self.rows = slice(0, net.n)
        self.nodes = torch.arange(net.n, device=device)
        self._pull = WeightMatrix.of(net.R, device, dtype)
        self._push = WeightMatrix.of(net.C, device, dtype)

    def at(self, t: int) -> "Simulator":
        """Return the mixer of step t: this one, since the network stays as it is."""
        return self


def is_sparse(W: csr_array) -> bool:
    """Whether a sparse product with a matrix is the faster one."""
    height, width = W.shape
    return bool(max(W.shape) >= SPARSE_N and W.nnz <= SPARSE_SHARE * height * width)


class WeightMatrix:
    """One weight matrix, or a block of one, on the device: dense or sparse, whichever is faster."""

    def __init__(self, matrix: Tensor, *, is_sparse: bool = False) -> None:
        self.is_sparse, self._matrix = is_sparse, matrix
        self._alone = matrix if is_sparse else matrix.unsqueeze(0)  # for one trial

    @classmethod
    def of(cls, W: csr_array, device: torch.device | str, dtype: torch.dtype) -> "WeightMatrix":
        """Put a matrix on the device, dense or sparse, whichever is faster."""
        sparse = is_sparse(W)
        matrix = _sparse(W, dtype) if sparse else torch.from_numpy(W.toarray())
        return cls(matrix.to(device=device, dtype=dtype), is_sparse=sparse)

    def __call__(self, rows: Tensor, *changes: Change) -> Tensor:
        """W(X + Σ αD)."""
        rows = add_changes(rows, changes)
        if rows.dim() == 3 and not self.is_sparse:
            # What @ comes to as well, but by ten small operations.
            trials = rows.shape[0]
            spread = self._alone if trials == 1 else self._matrix.expand(trials, -1, -1)
            return torch.bmm(spread, rows)
        if not self.is_sparse:
            return self._matrix @ rows
        if rows.dim() == 2:
            return self._matrix @ rows
        wide = rows.movedim(-2, 0)
        mixed: Tensor = self._matrix @ wide.reshape(len(wide), -1)
        return mixed.reshape(len(mixed), *wide.shape[1:]).movedim(0, -2)


def _sparse(W: csr_array, dtype: torch.dtype) -> Tensor:
    with warnings.catch_warnings():
        # PyTorch calls its CSR tensors a beta feature; a product with one is all we ask, and
        # the invariants are checked.
        warnings.filterwarnings("ignore", message="Sparse (CSR tensor support|invariant checks)")
        return torch.sparse_csr_tensor(
            torch.from_numpy(W.indptr.astype(np.int64)),
            torch.from_numpy(W.indices.astype(np.int64)),
            torch.from_numpy(W.data),
            size=W.shape,
            dtype=dtype,
            check_invariants=True,
        )
