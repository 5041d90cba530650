"""The sets of images that there are, and how to come by them."""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from digrad.base.data_folders import VARIABLE, MissingDataError, data_folder
from digrad.base.errors import FileFormatError, lookup
from digrad.data.formats import (
    LOOSE,
    missing_cifar,
    missing_idx,
    name_file_in_errors,
    read_cifar,
    read_mnist,
)
from digrad.data.images import Images, LabeledImages

DIGITS_TRAIN = 1500  # the first so many; the other 297 are the test set
SOURCE = "scikit-learn"  # the package that the set "digits" comes with


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


# Sizes and SHA-256 of MNIST and Fashion-MNIST were computed from files whose MD5 are the published
# ones. Those of CIFAR-10 are the ones that TensorFlow Datasets checks against; its authors publish
# only an MD5, c32a1d4ab5d03f1284b67883e8d87530.
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


def missing_digits(folder: Path) -> list[str]:
    """Return the package if it is not installed; no folder has to do with it."""
    del folder
    return [] if find_spec("sklearn") else [SOURCE]


def read_digits(folder: Path) -> tuple[LabeledImages, LabeledImages]:
    """Return the digits, whose values 0 .. 16 become 0 .. 255; they need no folder.

    Raises:
        MissingDataError: scikit-learn cannot be imported.
    """
    del folder
    try:
        load = import_module("sklearn.datasets").load_digits
    except ImportError as error:  # also where it is there but something that it needs is not
        what = f"{SOURCE} cannot be imported: {error}"
        raise MissingDataError(what, hint=f"pip install {SOURCE}") from error
    images, labels = load(return_X_y=True)
    pixels = np.rint(images * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
    labels = labels.astype(np.int64)
    return LabeledImages(pixels[:DIGITS_TRAIN], labels[:DIGITS_TRAIN]), LabeledImages(
        pixels[DIGITS_TRAIN:], labels[DIGITS_TRAIN:]
    )


@dataclass(frozen=True)
class Dataset:
    """What is known of a set of images before its files are read.

    Args:
        about: what the images show.
        train: how many there are to learn from.
        test: how many to test on.
        shape: channels, height and width.
        classes: their names, in the order of the labels.
        mean: of each channel's pixels / 255 in the training set.
        std: their standard deviation.
        read: returns training and test set from a folder.
        missing: says which files a folder lacks.
        folders: within the folder of all data, where the files may be; the first is ours.
        files: what can be fetched.
        unpacked: what may be there in the place of these.
        test_labels: SHA-256 of the test labels as bytes, to tell sets with equal file names apart.
    """

    about: str
    train: int
    test: int
    shape: tuple[int, int, int]
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    read: Callable[[Path], tuple[LabeledImages, LabeledImages]]
    missing: Callable[[Path], list[str]]
    folders: tuple[str, ...] = ()
    files: tuple[Remote, ...] = ()
    unpacked: str = ""
    test_labels: str = ""


DIGITS = tuple("0123456789")
DATASETS: dict[str, Dataset] = {
    "mnist": Dataset(
        about="handwritten digits",
        train=60_000,
        test=10_000,
        shape=(1, 28, 28),
        classes=DIGITS,
        mean=(0.1307,),
        std=(0.3081,),
        read=read_mnist,
        missing=missing_idx,
        folders=("mnist", "MNIST/raw"),  # the second is where torchvision puts them
        files=MNIST,
        test_labels="ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
    ),
    "fashion-mnist": Dataset(
        about="clothes",
        train=60_000,
        test=10_000,
        shape=(1, 28, 28),
        classes=(
            *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
            *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
        ),
        mean=(0.2860,),
        std=(0.3530,),
        read=read_mnist,
        missing=missing_idx,
        folders=("fashion-mnist", "FashionMNIST/raw"),
        files=FASHION_MNIST,
        test_labels="3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9",
    ),
    "cifar-10": Dataset(
        about="small colour photographs",
        train=50_000,
        test=10_000,
        shape=(3, 32, 32),
        classes=(
            *("airplane", "automobile", "bird", "cat", "deer"),
            *("dog", "frog", "horse", "ship", "truck"),
        ),
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),  # over all pixels, not the mean of each image's own
        read=read_cifar,
        missing=missing_cifar,
        folders=("cifar-10",),
        files=CIFAR_10,
        unpacked=LOOSE,
    ),
    "digits": Dataset(
        about="handwritten digits, small",
        train=1_500,
        test=297,
        shape=(1, 8, 8),
        classes=DIGITS,
        mean=(0.3052,),
        std=(0.3749,),
        read=read_digits,
        missing=missing_digits,
    ),
}


def read_images(name: str, folder: str | Path | None = None) -> Images:
    """Read a set of images by its name.

    Args:
        name: one of ``DATASETS``.
        folder: where the files are, in it or in its subfolder ``name``; without it the
            environment variable DIGRAD_DATA says where, or else it is the user's cache.

    Raises:
        MissingDataError: Files are not there; the text says which belong where.
        FileFormatError: A file is damaged or not what its name says.
    """
    chosen = lookup(DATASETS, name, "dataset")
    place = find_files(name, folder)
    train, test = chosen.read(place)
    with name_file_in_errors(place, hint="check which files these are"):
        # Another set's files? Those of MNIST and Fashion-MNIST have the same names.
        seen = sha256(test.labels.astype(np.uint8).tobytes()).hexdigest()
        for other, dataset in DATASETS.items():
            if other != name and dataset.test_labels == seen:
                hint = f"ask for {other}, or name the folder of {name}"
                raise FileFormatError(f"holds {other}, not {name}", hint=hint)
        return Images(name, train, test, chosen.classes, chosen.mean, chosen.std)


def find_files(name: str, folder: str | Path | None = None) -> Path:
    """Return the folder that holds all files of a set, or say which ones are missing.

    Raises:
        MissingDataError: They are not in the folder, nor in one of its subfolders.
    """
    chosen = lookup(DATASETS, name, "dataset")
    root = data_folder(folder)
    # Subfolders first: their names say whose files they hold.
    places = [*(root / inner for inner in chosen.folders), root]
    lost = {place: chosen.missing(place) for place in places}
    best = min(places, key=lambda place: len(lost[place]))
    if not lost[best]:
        return best
    if not chosen.files:
        package = lost[best][0]
        what = f"{name} come with {package}, which is not installed"
        raise MissingDataError(what, hint=f"pip install {package}")
    begun = len(lost[best]) < max(map(len, lost.values()))
    home = best if begun else home_of(name, folder)
    files = lost[best] if begun else [file.name for file in chosen.files]
    fetch = f"`digrad data fetch {name}`"
    if folder:
        fetch = f"`digrad data fetch {name} --data-dir {root}`"
    raise MissingDataError(
        f"{name}: not all of its files are in {home}; missing are",
        *(f"  {file}" for file in files),
        *([f"or, unpacked, {chosen.unpacked}"] if chosen.unpacked and not begun else []),
        hint=f"{fetch} downloads them; or put them there yourself; "
        f"or say where they are: {VARIABLE}=FOLDER, or data_dir in [problem] of an experiment",
    )


def other_sizes(name: str, place: Path) -> list[str]:
    """Say which files in a folder have another size than published: damaged, or another's."""
    return [
        f"{file.name} has {(place / file.name).stat().st_size:,} bytes, {file.size:,} are published"
        for file in DATASETS[name].files
        if (place / file.name).is_file() and (place / file.name).stat().st_size != file.size
    ]


def home_of(name: str, folder: str | Path | None = None) -> Path:
    """Return the folder that a set is fetched into: a subfolder of that of all data."""
    root = data_folder(folder)
    return root if root.name == name else root / name
