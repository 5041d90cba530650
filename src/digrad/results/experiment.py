"""Experiments as TOML files: every key checked, every wrong one explained."""

import tomllib
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

from digrad.base.errors import (
    DigradError,
    FileFormatError,
    ParameterError,
    lookup,
    short_repr,
)
from digrad.base.files import plain_bytes, toml_of
from digrad.base.former_names import present_name, with_present_names
from digrad.base.own_code import is_own
from digrad.base.tables import BESIDE, TableError, read_table
from digrad.networks import AnyNetwork, build_any


class ExperimentError(TableError):
    """An experiment that cannot be run as it is written."""


@dataclass(frozen=True)
class NetworkSpec:
    """One network of an experiment: a topology or a file, and its weights."""

    topology: str = ""
    file: str = ""
    push_file: str = ""  # the matrix C, where ``file`` holds R
    name: str = ""  # what figures call it; the topology or file by default
    n: int = 0  # nodes of a topology
    seed: int = -1  # which graph of a random topology; -1 takes the topology's default
    weights: str = ""
    push_graph: str = "same"
    largest_component: bool = False
    undirected: bool = False
    params: dict[str, Any] = field(default_factory=dict)
    files: tuple[str, ...] = ()  # the slots of a timetable, instead of ``file``
    exchange_every: int = 1  # steps from one exchange to the next
    keep: float = 1.0  # probability that a link works in a step
    loss: float | dict = 0.0  # type: ignore[type-arg]  # share of messages lost, or a table

    @property
    def label(self) -> str:
        """What figures call it."""
        return self.name or self.topology or Path(self.file or [*self.files, ""][0]).stem

    def build(self, folders: Sequence[Path] = ()) -> AnyNetwork:
        """Make the network; files are sought in the given folders first, then here.

        Raises:
            ExperimentError: if it cannot be built, as when its file has moved.
        """
        if sum(map(bool, (self.topology, self.file, self.files))) != 1:
            what = "needs either a topology or a file (files, of a timetable)"
            raise ExperimentError(f"networks.{self.label or '?'} {what}")
        first, *slots = [find_file(file, folders) for file in self.files] or [""]
        try:
            return build_any(
                self.topology or find_file(self.file, folders) or first,
                self.n or None,
                slots=slots,
                exchange_every=self.exchange_every,
                keep=self.keep,
                loss=self.loss,
                push_file=find_file(self.push_file, folders) or None,
                params={key: option_text(value) for key, value in self.params.items()},
                seed=None if self.seed < 0 else self.seed,
                weights=self.weights or None,
                push_graph=self.push_graph,
                largest_component=self.largest_component,
                undirected=self.undirected,
                folders=folders,
            )
        except DigradError as error:
            raise ExperimentError(f"networks.{self.label}: {error}") from error


@dataclass(frozen=True)
class AlgorithmSpec:
    """One algorithm of an experiment."""

    algorithm: str
    name: str = ""  # what figures call it; the algorithm by default
    lr: tuple[float, ...] = ()  # instead of the experiment's
    params: dict[str, Any] = field(default_factory=dict)
    estimator: dict[str, Any] = field(default_factory=dict)  # kind and its keys; none: samples
    compress: dict[str, Any] = field(default_factory=dict)  # kind and its keys; none: as it is
    # Step sizes by the names of networks, instead of all others there.
    lr_on: dict[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """What figures call it."""
        return self.name or self.algorithm

    @property
    def every_size(self) -> tuple[float, ...]:
        """All step sizes of its own, on whatever network."""
        return (*self.lr, *(size for on in self.lr_on.values() for size in on))

    @property
    def inner_kind(self) -> str:
        """The name of its inner optimizer; empty without one."""
        inner = self.params.get("inner", "")
        return str(inner.get("kind", "") if isinstance(inner, Mapping) else inner or "")


@dataclass(frozen=True)
class KindSpec:
    """A problem or a schedule: its name in the registry and its parameters."""

    kind: str
    params: dict[str, Any] = field(default_factory=dict, metadata=BESIDE)


@dataclass(frozen=True)
class Experiment:
    """Networks x algorithms x step sizes x seeds on one problem."""

    networks: tuple[NetworkSpec, ...]
    algorithms: tuple[AlgorithmSpec, ...]
    problem: KindSpec
    steps: int
    lr: tuple[float, ...] = ()
    name: str = "experiment"
    seeds: tuple[int, ...] = (0,)
    schedule: KindSpec = field(default_factory=lambda: KindSpec("constant"))
    scale_by_n_pi: bool = True  # give γ/(nπ) to methods that move by nπ times the gradient
    metrics: tuple[str, ...] = ()  # what to record; empty takes what is worth its cost
    metrics_every: int = 0  # steps between records; 0: a hundredth of the run, or as they cost
    dtype: str = "float32"
    tf32: bool = False  # on a GPU, multiply with 10 bits of mantissa: faster, less exact
    precision: str = "full"  # "bf16" computes modules in bfloat16, and keeps all in dtype
    compile: str = "auto"  # "auto", "always" or "never"
    trials_at_once: int = 0  # 0 takes as many as fit into memory
    # How many step sizes and seeds it had each time before it was extended: what was added runs
    # in tensors of its own, as sums in a tensor of another size round differently.
    grown_from: tuple[tuple[int, ...], ...] = ()
    clock: dict[str, Any] = field(default_factory=dict)  # keys of digrad.clock; none: no time
    tried: tuple[float, ...] = ()  # the grid from which ``digrad tune`` chose the step sizes
    # Where the files that it names are sought before they are sought here; no key of a file.
    folders: tuple[Path, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        checks = [
            ("steps", self.steps >= 1, "at least 1", self.steps),
            ("metrics_every", self.metrics_every >= 0, "at least 0", self.metrics_every),
            ("trials_at_once", self.trials_at_once >= 0, "at least 0", self.trials_at_once),
            (
                "seeds",
                bool(self.seeds)
                and 0 <= min(self.seeds) <= max(self.seeds) < 2**63
                and len(set(self.seeds)) == len(self.seeds),
                "one or more different ones in 0 .. 2^63 - 1",
                self.seeds,
            ),
            (
                "grown_from",
                all(len(was) == 2 and min(was) >= 1 for was in self.grown_from),
                "pairs of how many step sizes and seeds there were",
                self.grown_from,
            ),
            ("networks", bool(self.networks), "one or more", 0),
            ("algorithms", bool(self.algorithms), "one or more", 0),
            (
                "name",
                self.name not in ("", ".", "..") and not {*self.name} & {*'/\\\0:*?"<>|'},
                "usable as the name of a folder",
                self.name,
            ),
        ]
        for key, fine, wanted, got in checks:
            if not fine:
                raise ExperimentError(f"{key} must be {wanted}, got {short_repr(got)}")
        lookup(dict.fromkeys(("float32", "float64")), self.dtype, "dtype")
        lookup(dict.fromkeys(("full", "bf16")), self.precision, "precision")
        lookup(dict.fromkeys(("auto", "always", "never")), self.compile, "compile")
        for where, sizes in (("lr", self.lr), *self._own_sizes()):
            if any(not 0 <= size < float("inf") for size in sizes) or len(set(sizes)) < len(sizes):
                raise ExperimentError(
                    f"{where} must be different numbers from 0 on, got {short_repr(sizes)}"
                )
        for network, a in product(self.networks, self.algorithms):
            if not self.sizes(network.label, a):
                where = f" on {network.label}" if a.every_size else ""
                what = f"algorithms.{a.label} has no step size{where}: lr is empty"
                raise ExperimentError(what)
        for key in ("networks", "algorithms"):
            labels = [spec.label for spec in getattr(self, key)]
            twice = [label for label in labels if labels.count(label) > 1]
            if twice:
                what, hint = f"two {key} are called {twice[0]!r}", 'give each its own name = "..."'
                raise ExperimentError(what, hint=hint)

    def _own_sizes(self) -> list[tuple[str, tuple[float, ...]]]:
        own = [(f"algorithms.{a.label}.lr", a.lr) for a in self.algorithms]
        for a in self.algorithms:
            where = f"algorithms.{a.label}.lr_on"
            for name, sizes in a.lr_on.items():
                lookup({n.label: n for n in self.networks}, name, f"network in {where}")
                own.append((f"{where}.{name}", sizes))
        return own

    def sizes(self, network: str, algorithm: AlgorithmSpec) -> tuple[float, ...]:
        """The step sizes of an algorithm on a network."""
        return algorithm.lr_on.get(network, algorithm.lr) or self.lr

    @property
    def own_names(self) -> tuple[str, ...]:
        """The classes and functions of the user's own that it names, each once."""
        names = [self.problem.kind, *(a.algorithm for a in self.algorithms)]
        names += [a.inner_kind for a in self.algorithms]
        names += [network.topology for network in self.networks]
        return tuple(dict.fromkeys(name for name in names if is_own(name)))

    @property
    def of_objects(self) -> bool:
        """Whether something of it was an object in Python, which no file can bring back."""
        kinds = (self.problem.kind, self.schedule.kind, *(a.algorithm for a in self.algorithms))
        return "given" in kinds

    @property
    def trials(self) -> int:
        """How many runs it consists of."""
        pairs = product(self.networks, self.algorithms)
        return sum(len(self.sizes(net.label, a)) for net, a in pairs) * len(self.seeds)


def load_experiment(path: str | Path, edits: Sequence[str] = ()) -> Experiment:
    """Read an experiment from a TOML file.

    Args:
        path: the file.
        edits: changes to it, such as ``"problem.batch=16"``.
    """
    file = Path(path)
    try:
        table = toml_of(plain_bytes(file))
    except FileNotFoundError:
        hint = "`digrad init` writes an example"
        raise FileFormatError(f"{file}: no such file", hint=hint) from None
    except (OSError, FileFormatError) as error:
        what = "a folder" if file.is_dir() else error
        hint = "`digrad init` writes an example"
        what = str(what).removeprefix("not a TOML file: ")
        raise FileFormatError(f"{file}: not a TOML file: {what}", hint=hint) from error
    try:
        stored = (file.parent / "environment.json").exists()  # with a run, as it was written then
        table = _rename_former_keys(table, quiet=stored)
        apply_edits(table, edits)
        # The copies that a run folder keeps of the user's own files are in its folder "code".
        return replace(parse_experiment(table), folders=(file.parent, file.parent / "code"))
    except DigradError as error:
        raise ExperimentError(f"{file}: {error}") from error


def _rename_former_keys(table: Mapping[str, Any], *, quiet: bool = False) -> dict[str, Any]:
    """Return an experiment's tables with present names for former ones."""
    made = with_present_names(table, "experiment", quiet=quiet)
    for part in ("networks", "algorithms"):
        if isinstance(made.get(part), list):
            made[part] = [
                with_present_names(one, part, quiet=quiet) if isinstance(one, Mapping) else one
                for one in made[part]
            ]
    return made


def parse_experiment(table: Mapping[str, Any]) -> Experiment:
    """Make an experiment from nested tables; unknown keys are errors with a suggestion."""
    table = _rename_former_keys(table)
    if table.get("clock") == {}:  # a clock with its defaults, not none at all
        table = {**table, "clock": {"compute": 1.0}}
    made: Experiment = read_table(Experiment, table, whole="the experiment")
    return made


def to_table(experiment: Experiment) -> dict[str, Any]:
    """Return an experiment as nested plain values, as a TOML file holds them, but empty options."""
    plain = _without_empty(replace(experiment, folders=()))
    plain["networks"] = [_without_empty(network) for network in experiment.networks]
    plain["algorithms"] = [_without_empty(algorithm) for algorithm in experiment.algorithms]
    return plain


def _without_empty(spec: Any) -> dict[str, Any]:
    """Return the fields of a dataclass, but those that are empty, as they are by default."""
    plain = {
        f.name: f.default if f.default_factory is MISSING else f.default_factory()
        for f in fields(spec)
    }
    empty = {key for key, value in plain.items() if value in ("", (), {})}
    return {k: v for k, v in asdict(spec).items() if not (k in empty and v == plain[k])}


def find_file(file: str, folders: Sequence[Path]) -> str:
    """Return where a file is: in one of the folders, or as it is written."""
    if not file:
        return file
    return next((str(f / file) for f in folders if (f / file).is_file()), file)


def option_text(value: Any) -> str:
    """Return a topology's option as the command line writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


FORM = "write KEY=VALUE, as in steps=10, seeds=0,1,2 or problem.batch=16"


def apply_edits(table: MutableMapping[str, Any], edits: Iterable[str]) -> None:
    """Change the tables of an experiment's file before they are checked.

    >>> table = {"steps": 5, "algorithms": [{"algorithm": "sgp", "name": "mine"}]}
    >>> apply_edits(table, ["steps=10", "seeds=0,1", "algorithms.mine.lr=0.1"])
    >>> table["steps"], table["seeds"], table["algorithms"][0]["lr"]
    (10, [0, 1], 0.1)
    """
    for text in edits:
        path, value = parse_edit(text)
        *way, last = path.split(".")
        last = present_name(last, way[0] if way else "experiment")
        place: Any = table
        for key in way:
            place = _within(place, key, text)
        if not isinstance(place, MutableMapping):
            raise ParameterError(f"{text}: there is no table to set {last!r} in")
        place[last] = value


def parse_edit(text: str) -> tuple[str, Any]:
    """Return key and value: written as in a file, as a list without brackets, or a word."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip() or not all(key.strip().split(".")):
        raise ParameterError(f"cannot set {text!r}", hint=FORM)
    for written in (value, f"[{value}]"):
        try:
            return key.strip(), tomllib.loads(f"value = {written}")["value"]
        except tomllib.TOMLDecodeError:
            continue
    return key.strip(), value


def _within(place: Any, key: str, text: str) -> Any:
    """Return a table in a table, or in a list of them by its number or name."""
    if isinstance(place, MutableMapping):
        return place.setdefault(key, {})
    if isinstance(place, list):
        named = {str(k): table for k, table in enumerate(place)}
        for table in place:
            if isinstance(table, MutableMapping):
                names = (table.get(by) for by in ("algorithm", "topology", "name"))
                named |= {str(name): table for name in names if name}
        return lookup(named, key, f"part of {text.partition('=')[0]}")
    raise ParameterError(f"{text}: {key!r} is not in a table", hint=FORM)
