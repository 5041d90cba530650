"""Where files are looked for, and what is said when they are not there."""

from pathlib import Path

import pytest

from digrad.base.data_folders import cache_folder
from digrad.base.errors import ParameterError, UnknownNameError
from digrad.data import MissingDataError, data_folder, find_files, read_images
from digrad.data import formats as cifar
from digrad.data.sets import home_of, other_sizes
from tiny_images import cifar_contents, write_mnist


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder without anything, and no word of any other place."""
    for name in ("DIGRAD_DATA", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("USERPROFILE", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.mark.parametrize(
    ("platform", "variable", "inner"),
    [
        ("linux", "XDG_CACHE_HOME", ".cache"),
        ("darwin", None, "Library/Caches"),
        ("win32", "LOCALAPPDATA", "AppData/Local"),
    ],
)
def test_the_cache_is_where_the_system_says(
    home: Path, monkeypatch: pytest.MonkeyPatch, platform: str, variable: str | None, inner: str
) -> None:
    assert cache_folder(platform) == home / inner / "digrad"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder(platform) == home / inner / "digrad"
    if variable is not None:
        monkeypatch.setenv(variable, str(home / "else"))
        assert cache_folder(platform) == home / "else" / "digrad"


def test_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> Path:
        raise RuntimeError("no home")

    monkeypatch.setattr(Path, "home", lost)
    with pytest.raises(ParameterError, match=r"hint: name a folder: data_dir=, or .* DIGRAD_DATA"):
        cache_folder("linux")


def test_a_named_folder_goes_before_the_variable_and_this_before_the_cache(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"named": 1, "set": 2, "cache": 3}
    cache = cache_folder()
    write_mnist(cache / "mnist", test=sizes["cache"])
    assert len(read_images("mnist").test) == sizes["cache"]
    monkeypatch.setenv("DIGRAD_DATA", "~/set")
    write_mnist(home / "set" / "mnist", test=sizes["set"])
    assert len(read_images("mnist").test) == sizes["set"]
    write_mnist(tmp_path / "named", test=sizes["named"])
    assert len(read_images("mnist", tmp_path / "named").test) == sizes["named"]
    monkeypatch.setenv("DIGRAD_DATA", "")
    assert data_folder() == cache


@pytest.mark.parametrize("inner", ["", "mnist", "MNIST/raw"])
def test_files_are_found_in_the_folder_or_in_one_within(tmp_path: Path, inner: str) -> None:
    write_mnist(tmp_path / inner)
    assert find_files("mnist", tmp_path) == tmp_path / inner


def test_a_subfolder_that_says_the_name_goes_first(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    write_mnist(tmp_path / "fashion-mnist")
    assert find_files("fashion-mnist", tmp_path) == tmp_path / "fashion-mnist"
    assert find_files("mnist", tmp_path) == tmp_path


def lines(name: str, folder: Path | None) -> list[str]:
    with pytest.raises(MissingDataError) as caught:
        find_files(name, folder)
    return str(caught.value).splitlines()


def test_the_error_says_which_files_belong_where(tmp_path: Path) -> None:
    first, *files, hint = lines("mnist", tmp_path)
    assert str(tmp_path / "mnist") in first
    assert [file.strip() for file in files] == [
        "train-images-idx3-ubyte.gz",
        "train-labels-idx1-ubyte.gz",
        "t10k-images-idx3-ubyte.gz",
        "t10k-labels-idx1-ubyte.gz",
    ]
    assert f"`digrad data fetch mnist --data-dir {tmp_path}`" in hint
    first, *files, hint = lines("cifar-10", None)
    assert str(cache_folder() / "cifar-10") in first
    assert files[0].strip() == "cifar-10-binary.tar.gz"
    unpacked = "cifar-10-batches-bin/: data_batch_1.bin .. data_batch_5.bin, test_batch.bin"
    assert files[1].strip() == f"or, unpacked, {unpacked}"
    assert "`digrad data fetch cifar-10`" in hint
    assert "DIGRAD_DATA=FOLDER" in hint


def test_where_some_files_are_only_the_others_are_named(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    (tmp_path / "t10k-images-idx3-ubyte.gz").unlink()
    first, *files, _ = lines("mnist", tmp_path)
    assert f"in {tmp_path};" in first
    assert [file.strip() for file in files] == ["t10k-images-idx3-ubyte.gz"]
    (tmp_path / "c").mkdir()
    for name, content in cifar_contents(1).items():
        if name != cifar.TEST:
            (tmp_path / "c" / name).write_bytes(content)
    _, *files, _ = lines("cifar-10", tmp_path / "c")
    assert [file.strip() for file in files] == ["test_batch.bin"]


def test_files_of_another_size_than_published_are_named(tmp_path: Path) -> None:
    (tmp_path / "cifar-10").mkdir()
    (tmp_path / "cifar-10" / cifar.ARCHIVE).write_bytes(b"cut off")
    assert find_files("cifar-10", tmp_path) == tmp_path / "cifar-10"
    (said,) = other_sizes("cifar-10", tmp_path / "cifar-10")
    assert said.startswith("cifar-10-binary.tar.gz has 7 bytes, 170,")
    assert other_sizes("digits", tmp_path) == []


def test_what_a_set_is_fetched_into(tmp_path: Path) -> None:
    assert home_of("mnist", tmp_path) == tmp_path / "mnist"
    assert home_of("mnist", tmp_path / "mnist") == tmp_path / "mnist"


def test_unknown_names_get_a_suggestion() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'fashion-mnist'"):
        read_images("fashion_mnist")
