"""Where the original files can be had, and how to know them.

Sizes and SHA-256 of MNIST and Fashion-MNIST were computed from files whose MD5 are the
published ones. Those of CIFAR-10 are the ones that TensorFlow Datasets checks against; its
authors publish only an MD5, c32a1d4ab5d03f1284b67883e8d87530.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Remote:
    """A file on the network.

    Args:
        name: of the file.
        size: in bytes.
        sha256: of its content.
        mirrors: addresses that the name is appended to, the first to be tried first.
    """

    name: str
    size: int
    sha256: str
    mirrors: tuple[str, ...]


_MNIST = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
# The address in the authors' README is plain http; this is the same bucket over https.
_FASHION = (
    "https://fashion-mnist.s3.eu-central-1.amazonaws.com/",
    "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
)
_CIFAR = (
    "https://www.cs.toronto.edu/~kriz/",
    "https://cave.cs.toronto.edu/kriz/",
    "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/",
)

_IDX = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


def _remotes(
    mirrors: tuple[str, ...], names: tuple[str, ...], *known: tuple[int, str]
) -> tuple[Remote, ...]:
    """Return files of the same mirrors, from their sizes and checksums."""
    return tuple(Remote(name, *one, mirrors) for name, one in zip(names, known, strict=True))


MNIST = _remotes(
    _MNIST,
    _IDX,
    (9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
    (28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
    (1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
    (4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
)
FASHION_MNIST = _remotes(
    _FASHION,
    _IDX,
    (26_421_880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
    (29_515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
    (4_422_102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
    (5_148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
)
CIFAR_10 = _remotes(
    _CIFAR,
    ("cifar-10-binary.tar.gz",),
    (170_052_171, "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"),
)
