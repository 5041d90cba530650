"""Some of the results, under other names: what ``--where``, ``--only`` and ``--label`` mean."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from digrad.base.errors import ParameterError, lookup, message
from digrad.results.trials import Key, Results, Trial

FIELDS = {
    **dict.fromkeys(("run", "network", "algorithm", "seed")),
    **dict.fromkeys(("lr", "step_size"), "lr"),
}
NAMED = ("run", "network", "algorithm")  # fields whose values are names


def select(
    results: Results,
    where: Iterable[str] = (),
    only: Iterable[str] = (),
    label: Iterable[str] = (),
) -> Results:
    """Keep some trials and rename what they are called.

    Args:
        results: what was recorded.
        where: conditions such as ``"algorithm=sgp,push-pull,lr=0.1"``: all must hold; what has
            several values may have any of them.
        only: names of runs, networks or algorithms to keep; what none of them names is kept.
        label: new names, such as ``"push-pull=S-PP"``.
    """
    for text in where:
        for field, values in conditions(text).items():
            results = results.select(**{field: values})
    for field, names in _by_field(results, only).items():
        results = results.select(**{field: names})
    return _renamed(results, label)


def conditions(text: str) -> dict[str, list[str]]:
    """Read conditions: after a comma comes another one, or another value.

    >>> conditions("algorithm=sgp,push-pull,lr=0.1")
    {'algorithm': ['sgp', 'push-pull'], 'lr': ['0.1']}
    """
    found: dict[str, list[str]] = {}
    values: list[str] | None = None
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if equals and name.strip() in FIELDS:
            values = found.setdefault(FIELDS[name.strip()] or name.strip(), [])
        elif values is None:
            if equals:
                lookup(FIELDS, name.strip(), "field")
            hint = "write FIELD=VALUE, as in algorithm=push-pull,lr=0.1"
            raise ParameterError(message(f"cannot select by {text!r}", hint=hint))
        else:  # a value, whatever it looks like
            value = part
        values.append(value.strip())
    return found


def _by_field(results: Results, names: Iterable[str]) -> dict[str, list[str]]:
    """Find out what names are names of."""
    known = {name: field for field in NAMED for name in _called(results, field)}
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(lookup(known, name, "run, network or algorithm"), []).append(name)
    return found


def _called(results: Results, field: str) -> list[str]:
    return list(dict.fromkeys(str(getattr(trial.key, field)) for trial in results.trials))


def _renamed(results: Results, labels: Iterable[str]) -> Results:
    names = {field: {name: name for name in _called(results, field)} for field in NAMED}
    for text in labels:
        _rename(names, text)
    for field, new in names.items():
        twice = next((n for n in new.values() if [*new.values()].count(n) > 1), None)
        if twice is not None:
            what = f"two of the {field}s would be called {twice!r}"
            raise ParameterError(message(what, hint="give each a label of its own"))

    def renamed(trial: Trial) -> Trial:
        run, network, algorithm = (names[f][getattr(trial.key, f)] for f in NAMED)
        return trial._replace(key=Key(run, network, algorithm, trial.key.lr))

    called = names["run"]
    planned = {called.get(run, run): steps for run, steps in results.planned.items()}
    tried = {called.get(run, run): sizes for run, sizes in results.tried.items()}
    trials = tuple(map(renamed, results.trials))
    return replace(results, trials=trials, planned=planned, tried=tried)


def _rename(names: dict[str, dict[str, str]], text: str) -> None:
    """Enter a new name wherever the old one is one; names may have a = of their own."""
    fitting: Sequence[str] = [n for new in names.values() for n in new if text.startswith(f"{n}=")]
    if not fitting:
        if "=" not in text:
            hint = "write OLD=NEW, as in push-pull=S-PP"
            raise ParameterError(message(f"cannot relabel by {text!r}", hint=hint))
        every = dict.fromkeys(name for new in names.values() for name in new)
        lookup(every, text.rpartition("=")[0], "run, network or algorithm")
    old = max(fitting, key=len)
    for new in names.values():
        if old in new:
            new[old] = text[len(old) + 1 :]
