"""Tables of answers."""

from math import inf

from digrad.base.text import plain
from digrad.results import Gap, judge
from digrad.show.layout import Columns
from digrad.show.tables import behind, closing, columns, render, verdict_rows
from results.made import made

TABLES = {
    ("ring", "S-PP"): {0.1: [1.0, 1.01, 1.02], 0.2: [inf, 2.0, 2.0]},
    ("ring", "SGP"): {0.1: [3.0, 3.01, 3.02], 0.2: [1.5, 1.49, 1.52]},
    ("ring", "AB"): {0.1: [inf, inf, inf], 0.2: [inf, inf, inf]},
}


def test_a_row_for_each_method_at_its_best_step() -> None:
    verdict = judge(made(TABLES))
    first, second, third = verdict_rows(verdict)
    assert (first["algorithm"], first["lr"], first["verdict"]) == ("S-PP", 0.1, "leads")
    assert (
        first["note"]
        == "best step is the smallest you tried: extend the grid; 1 of 6 trials diverged"
    )
    assert (second["algorithm"], second["lr"], second["verdict"]) == ("SGP", 0.2, "worse")
    assert str(second["behind"]).startswith("+49 % [")
    assert (third["lr"], third["verdict"]) == (None, "failed")
    text = plain(render(verdict_rows(verdict)), 160)
    assert "1.01 ± 0.01" in text
    assert "unknown" not in text
    assert closing(verdict) == [verdict.headline]


def test_who_has_no_rival_gets_no_verdict() -> None:
    assert closing(judge(made({("ring", "S-PP"): {0.1: [1.0, 1.1]}}))) == []


def test_gaps_in_their_own_units() -> None:
    assert behind(None) == ""
    assert behind(Gap(True, 12.0, 10.0, 15.0, True, 5, None)) == "x 12 [10, 15]"
    assert behind(Gap(False, -0.02, -0.03, -0.01, True, 5, None)) == "-0.02 [-0.03, -0.01]"
    assert behind(Gap(True, 1.25, -inf, inf, False, 1, None)) == "+25 %"


def test_markdown_and_latex_have_all_cells() -> None:
    laid_out = columns(verdict_rows(judge(made(TABLES))))
    markdown, latex = laid_out.markdown().splitlines(), laid_out.latex().splitlines()
    assert markdown[0].startswith("| network | algorithm | γ | seeds |")
    assert len(markdown) == 2 + 3
    assert latex[0] == r"\begin{tabular}{llrrrrlll}"
    assert r"1.01 $\pm$ 0.01" in latex[4]
    assert r"+49 \%" in latex[5]


def test_nothing_in_a_label_commands_latex() -> None:
    made = Columns(["a_b"], [True], [[r"50 % & $x$ {y} #1 \z ~ ^"]])
    assert made.latex().splitlines()[2] == r"a\_b \\"
    assert made.latex().splitlines()[4] == (
        r"50 \% \& \$x\$ \{y\} \#1 \textbackslash{}z \textasciitilde{} \textasciicircum{} \\"
    )


def test_names_are_whole_on_eighty_columns() -> None:
    tables = {("exponential-of-a-long-name", "push-diging"): {0.1: [1.0, 1.1]}}
    results = made(tables)
    rows = [{**row, "gradient_norm": 1.0, "consensus": 2.0} for row in verdict_rows(judge(results))]
    text = plain(render(rows), 80)
    assert text.count("exponential-of-a-long-name") >= 2
    assert max(map(len, text.splitlines())) <= 80
