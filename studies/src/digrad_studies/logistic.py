"""Figure 2: nonconvex logistic regression."""

from digrad.results.experiment import Experiment, KindSpec
from digrad_studies.setting import ALGORITHMS, networks


def logistic(quick: bool = False) -> Experiment:
    """Return Figure 2: S-PP, SGP and Push-DIGing on nonconvex logistic regression.

    n = 20, p = 400, J = 400, ρ = 0.01, σ_h = 0.2, γ = 0.1 and 0.05 times 0.2 every 300 steps,
    three repetitions (section 5). Left open by the paper and chosen here: minibatch 1, start
    0, 1500 steps, Erdos-Renyi p = 0.5 (E-16, E-19), the flower layout (E-18).
    """
    size = {"dim": 400, "samples": 400, "rho": 0.01, "sigma_h": 0.2, "batch": 1}
    return Experiment(
        name="logistic-quick" if quick else "logistic",
        networks=networks(),
        algorithms=ALGORITHMS,
        problem=KindSpec("logistic", size),
        schedule=KindSpec("step-decay", {"factor": 0.2, "period": 300}),
        steps=600 if quick else 1500,
        lr=(0.1, 0.05),
        seeds=(0, 1) if quick else (0, 1, 2),
        metrics_every=10,
    )
