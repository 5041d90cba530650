"""Every recursion once more, as its paper prints it: full NumPy matrices, one loop over t.

Nothing here is shared with the library. A reference returns the points at which gradients
0, 1, .., T are taken and, beside them, the method's answers; of methods that take steps at home,
where rounds 0, 1, .., T begin.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import reference_small as small

Array = NDArray[np.float64]


class Given(NamedTuple):
    R: Array
    C: Array
    X: Array  # (n, dim), equal rows
    grad: Callable[[int, Array], Array]  # gradients of step t at these rows
    lr: Callable[[int], float]
    T: int


class Run(NamedTuple):
    points: list[Array]  # T + 1 of (n, dim)
    answers: list[Array]  # T + 1 of (dim,)


Update = Callable[[Array, Array], Array]


def _is_twin(name: str, value: object) -> bool:
    """Whether it is a reference: a public function of what is given."""
    hints = getattr(value, "__annotations__", {})
    return not name.startswith("_") and hints.get("p") is Given and hints.get("return") is Run


def left_perron(R: Array) -> Array:
    """π with πᵀR = πᵀ and sum 1, by solving the equations."""
    n = len(R)
    equations = np.vstack([R.T - np.eye(n), np.ones(n)])
    return np.linalg.lstsq(equations, np.append(np.zeros(n), 1.0), rcond=None)[0]


def mean(X: Array) -> Array:
    return np.ones(len(X)) @ X / len(X)


def _tracking(p: Given, x_update: Update, y_update: Update) -> Run:
    """Gradient tracking from Y⁰ = G⁰, the two updates as printed: of (X, γY) and of (Y, G⁺ - G)."""
    X, G = p.X, p.grad(0, p.X)
    Y, points = G, [X]
    for t in range(p.T):
        X = x_update(X, p.lr(t) * Y)
        G_new = p.grad(t + 1, X)
        Y = y_update(Y, G_new - G)
        G = G_new
        points.append(X)
    return Run(points, [left_perron(p.R) @ X for X in points])


def push_pull(p: Given) -> Run:
    """X⁺ = R(X - γY), Y⁺ = C(Y + G⁺ - G)."""
    return _tracking(p, lambda X, gY: p.R @ (X - gY), lambda Y, dG: p.C @ (Y + dG))


def push_pull_original(p: Given) -> Run:
    """X⁺ = R(X - γY), Y⁺ = CY + G⁺ - G."""
    return _tracking(p, lambda X, gY: p.R @ (X - gY), lambda Y, dG: p.C @ Y + dG)


def ab(p: Given) -> Run:
    """X⁺ = AX - γY, Y⁺ = B(Y + G⁺ - G)."""
    return _tracking(p, lambda X, gY: p.R @ X - gY, lambda Y, dG: p.C @ (Y + dG))


def ab_cta(p: Given) -> Run:
    """X⁺ = AX - γY, Y⁺ = BY + G⁺ - G."""
    return _tracking(p, lambda X, gY: p.R @ X - gY, lambda Y, dG: p.C @ Y + dG)


def dsgt(p: Given) -> Run:
    """X⁺ = W(X - γY), Y⁺ = W(Y + G⁺ - G)."""
    return _tracking(p, lambda X, gY: p.R @ (X - gY), lambda Y, dG: p.R @ (Y + dG))


def sgp(p: Given) -> Run:
    """X½ = X - γG(Z), X⁺ = PX½, w⁺ = Pw, Z⁺ = X⁺/w⁺."""
    X, w, points, answers = p.X, np.ones(len(p.X)), [p.X], [mean(p.X)]
    for t in range(p.T):
        X = p.C @ (X - p.lr(t) * p.grad(t, points[-1]))
        w = p.C @ w
        points.append(np.diag(1 / w) @ X)
        answers.append(mean(X))
    return Run(points, answers)


def gradient_push(p: Given) -> Run:
    """V = PX, w⁺ = Pw, Z⁺ = V/w⁺, X⁺ = V - γG(Z⁺)."""
    X, w, points, answers = p.X, np.ones(len(p.X)), [], []
    for t in range(p.T + 1):
        V, w = p.C @ X, p.C @ w
        Z = np.diag(1 / w) @ V
        points.append(Z)
        answers.append(mean(V))
        X = V - p.lr(t) * p.grad(t, Z)
    return Run(points, answers)


def _push_tracking(p: Given, u_update: Update, y_update: Update) -> Run:
    """Push-sum with tracking: v⁺ = Cv, gradients at X = u/v, other updates as printed."""
    u, v, G = p.X, np.ones(len(p.X)), p.grad(0, p.X)
    Y, points, answers = G, [p.X], [mean(u)]
    for t in range(p.T):
        u = u_update(u, p.lr(t) * Y)
        v = p.C @ v
        X = np.diag(1 / v) @ u
        G_new = p.grad(t + 1, X)
        Y = y_update(Y, G_new - G)
        G = G_new
        points.append(X)
        answers.append(mean(u))
    return Run(points, answers)


def push_diging(p: Given) -> Run:
    """u⁺ = C(u - γY), v⁺ = Cv, X⁺ = u⁺/v⁺, Y⁺ = CY + G⁺ - G."""
    return _push_tracking(p, lambda u, gY: p.C @ (u - gY), lambda Y, dG: p.C @ Y + dG)


def add_opt(p: Given) -> Run:
    """x⁺ = Ax - αw, y⁺ = Ay, z⁺ = x⁺/y⁺, w⁺ = Aw + ∇(z⁺) - ∇(z)."""
    return _push_tracking(p, lambda x, aw: p.C @ x - aw, lambda w, dg: p.C @ w + dg)


def push_diging_atc(p: Given) -> Run:
    """u⁺ = W(u - γy), v⁺ = Wv, w⁺ = u⁺/v⁺, y⁺ = W(y + g⁺ - g)."""
    return _push_tracking(p, lambda u, gy: p.C @ (u - gy), lambda y, dg: p.C @ (y + dg))


def sonata(p: Given) -> Run:
    """φ⁺ = Aφ, X⁺ = (1/φ⁺)Aφ(X - γY), Y⁺ = (1/φ⁺)(AφY + G⁺ - G), φ as a diagonal matrix."""
    phi, X, G = np.ones(len(p.X)), p.X, p.grad(0, p.X)
    Y, points, answers = G, [X], [mean(X)]
    for t in range(p.T):
        D, phi = np.diag(phi), p.C @ phi
        X = np.diag(1 / phi) @ p.C @ D @ (X - p.lr(t) * Y)
        G_new = p.grad(t + 1, X)
        Y = np.diag(1 / phi) @ (p.C @ D @ Y + G_new - G)
        G = G_new
        points.append(X)
        answers.append(mean(np.diag(phi) @ X))
    return Run(points, answers)


def mg_push_diging(p: Given) -> Run:
    """Push-DIGing with every C replaced by C⁴; 4 is the default number of rounds."""
    return push_diging(p._replace(C=p.C @ p.C @ p.C @ p.C))


def _descent(p: Given, W: Array, weights: Array) -> Run:
    """X⁺ = W(X - γG)."""
    X, points = p.X, [p.X]
    for t in range(p.T):
        X = W @ (X - p.lr(t) * p.grad(t, X))
        points.append(X)
    return Run(points, [weights @ X for X in points])


def dsgd(p: Given) -> Run:
    """X⁺ = W(X - γG); the answer is the mean."""
    return _descent(p, p.R, np.full(len(p.R), 1 / len(p.R)))


def diffusion(p: Given) -> Run:
    """Ψ = X - γG, X⁺ = AΨ; the answer is weighted by the Perron vector of A."""
    return _descent(p, p.R, left_perron(p.R))


def extra(p: Given) -> Run:
    """Xₖ₊₂ = (I + W)Xₖ₊₁ - W̃Xₖ - (γₖ₊₁Gₖ₊₁ - γₖGₖ), X₁ = WX₀ - γ₀G₀, W̃ = ½(I + W)."""
    W, I = p.R, np.eye(len(p.R))  # noqa: E741
    X_old, step_old = p.X, p.lr(0) * p.grad(0, p.X)
    X = W @ X_old - step_old
    points = [X_old, X]
    for t in range(1, p.T):
        step = p.lr(t) * p.grad(t, X)
        X, X_old = (I + W) @ X - (I + W) / 2 @ X_old - (step - step_old), X
        step_old = step
        points.append(X)
    return Run(points, [mean(X) for X in points])


def _two_step(p: Given, W: Array, X: Array) -> Run:
    """Xₖ₊₁ = W(2Xₖ - Xₖ₋₁ - (γₖGₖ - γₖ₋₁Gₖ₋₁)) from X₀ and a given X₁."""
    X_old, points = p.X, [p.X, X]
    step_old = p.lr(0) * p.grad(0, X_old)
    for t in range(1, p.T):
        step = p.lr(t) * p.grad(t, X)
        X, X_old = W @ (2 * X - X_old - (step - step_old)), X
        step_old = step
        points.append(X)
    return Run(points, [mean(X) for X in points])


def exact_diffusion(p: Given) -> Run:
    """Ψ⁺ = X - γG, Φ = Ψ⁺ + X - Ψ, X⁺ = ½(I + W)Φ, Ψ⁰ = X⁰."""
    X, Psi, points = p.X, p.X, [p.X]
    for t in range(p.T):
        Psi_new = X - p.lr(t) * p.grad(t, X)
        X, Psi = (np.eye(len(X)) + p.R) / 2 @ (Psi_new + X - Psi), Psi_new
        points.append(X)
    return Run(points, [mean(X) for X in points])


def d2(p: Given) -> Run:
    """Xₖ₊₁ = W(2Xₖ - Xₖ₋₁ - (γₖGₖ - γₖ₋₁Gₖ₋₁)), X₁ = W(X₀ - γ₀G₀)."""
    return _two_step(p, p.R, p.R @ (p.X - p.lr(0) * p.grad(0, p.X)))


def nids(p: Given) -> Run:
    """Xₖ₊₁ = ½(I + W)(2Xₖ - Xₖ₋₁ - (γₖGₖ - γₖ₋₁Gₖ₋₁)), X₁ = X₀ - γ₀G₀."""
    return _two_step(p, (np.eye(len(p.R)) + p.R) / 2, p.X - p.lr(0) * p.grad(0, p.X))


def centralized(p: Given) -> Run:
    """DSGD with W = 11ᵀ/n."""
    return dsgd(p._replace(R=np.full_like(p.R, 1 / len(p.R))))


def _accelerated(p: Given, B: Array, weights: Array, beta: float, nu: float) -> Run:
    """x⁺ = As - γy + β(x - x₋), s⁺ = x⁺ + ν(x⁺ - x), y⁺ = By + ∇(s⁺) - ∇(s); gradients at s."""
    x = x_old = s = p.X
    g = y = p.grad(0, s)
    points, answers = [s], [weights @ x]
    for t in range(p.T):
        x, x_old = p.R @ s - p.lr(t) * y + beta * (x - x_old), x
        s = x + nu * (x - x_old)
        g_new = p.grad(t + 1, s)
        y, g = B @ y + g_new - g, g_new
        points.append(s)
        answers.append(weights @ x)
    return Run(points, answers)


def accelerated_push_pull(p: Given, beta: float = 0.2, nu: float = 0.3) -> Run:
    """Both momenta, with their defaults."""
    return _accelerated(p, p.C, left_perron(p.R), beta, nu)


def abm(p: Given) -> Run:
    """Heavy ball alone."""
    return accelerated_push_pull(p, 0.3, 0.0)


def abn(p: Given) -> Run:
    """The paper's names: y⁺ = Ax - αz, x⁺ = y⁺ + β(y⁺ - y), z⁺ = Bz + ∇(x⁺) - ∇(x)."""
    x = y = p.X
    g = z = p.grad(0, x)
    points, answers = [x], [left_perron(p.R) @ y]
    for t in range(p.T):
        y_new = p.R @ x - p.lr(t) * z
        x, y = y_new + 0.5 * (y_new - y), y_new
        g_new = p.grad(t + 1, x)
        z, g = p.C @ z + g_new - g, g_new
        points.append(x)
        answers.append(left_perron(p.R) @ y)
    return Run(points, answers)


def dsgt_hb(p: Given) -> Run:
    """ABm with A = B = W."""
    return _accelerated(p, p.R, np.full(len(p.R), 1 / len(p.R)), 0.3, 0.0)


def momentum_tracking(p: Given, beta: float = 0.9) -> Run:
    """M⁺ = βM + G, X⁺ = WX - γ(M⁺ - c), c⁺ = W(c - M⁺) + M⁺, from M = c = 0."""
    X, M, c = p.X, np.zeros_like(p.X), np.zeros_like(p.X)
    points = [X]
    for t in range(p.T):
        M = beta * M + p.grad(t, X)
        X = p.R @ X - p.lr(t) * (M - c)
        c = p.R @ (c - M) + M
        points.append(X)
    return Run(points, [mean(X) for X in points])


def qg_dsgdm(p: Given, beta: float = 0.9, mu: float = 0.9) -> Run:
    """X⁺ = W(X - γ(βm + G)), m⁺ = μm + (1 - μ)(X - X⁺)/γ."""
    X, m, points = p.X, np.zeros_like(p.X), [p.X]
    for t in range(p.T):
        X_new = p.R @ (X - p.lr(t) * (beta * m + p.grad(t, X)))
        m = mu * m + (1 - mu) * (X - X_new) / p.lr(t)
        X = X_new
        points.append(X)
    return Run(points, [mean(X) for X in points])


def push_pull_heavy_ball(p: Given, beta: float = 0.9, nesterov: bool = False) -> Run:
    """Y as S-PP, V = βV + Y, X⁺ = R(X - γV), or R(X - γ(Y + βV))."""
    X, G, V = p.X, p.grad(0, p.X), np.zeros_like(p.X)
    Y, points = G, [X]
    for t in range(p.T):
        V = beta * V + Y
        X = p.R @ (X - p.lr(t) * (Y + beta * V if nesterov else V))
        G_new = p.grad(t + 1, X)
        Y, G = p.C @ (Y + G_new - G), G_new
        points.append(X)
    return Run(points, [left_perron(p.R) @ X for X in points])


def push_pull_tracked_momentum(p: Given, beta: float = 0.9) -> Run:
    """M = βM + G, Y⁰ = M⁰, Y = C(Y + M - M₋), X⁺ = R(X - γY)."""
    X, M = p.X, p.grad(0, p.X)
    Y, points = M, [X]
    for t in range(p.T):
        X = p.R @ (X - p.lr(t) * Y)
        M_new = beta * M + p.grad(t + 1, X)
        Y, M = p.C @ (Y + M_new - M), M_new
        points.append(X)
    return Run(points, [left_perron(p.R) @ X for X in points])


def sgp_momentum(p: Given, beta: float = 0.9, nesterov: bool = False) -> Run:
    """U = βU + G(X/w), X⁺ = C(X - γU) or C(X - γ(G + βU)), w⁺ = Cw."""
    X, w, U = p.X, np.ones(len(p.X)), np.zeros_like(p.X)
    points, answers = [p.X], [mean(p.X)]
    for t in range(p.T):
        G = p.grad(t, points[-1])
        U = beta * U + G
        X = p.C @ (X - p.lr(t) * (G + beta * U if nesterov else U))
        w = p.C @ w
        points.append(np.diag(1 / w) @ X)
        answers.append(mean(X))
    return Run(points, answers)


def osgp(p: Given) -> Run:
    """x += flying, w += flying; then Cx and Cw cut into what stays and what flies; x -= γG."""
    D = np.diag(np.diag(p.C))
    x, w, flying, flying_w = p.X, np.ones(len(p.X)), np.zeros_like(p.X), np.zeros(len(p.X))
    points, answers = [], []
    for t in range(p.T + 1):
        x, w = x + flying, w + flying_w
        points.append(np.diag(1 / w) @ x)
        answers.append(mean(x))
        flying, flying_w, x, w = (p.C - D) @ x, (p.C - D) @ w, D @ x, D @ w
        x = x - p.lr(t) * p.grad(t, np.diag(1 / w) @ x)
    return Run(points, answers)


def local_sgp(p: Given, K: int = 4) -> Run:
    """K times X = X - γG(X/w), then X = CX, w = Cw; gradient k of round t is number Kt + k."""
    X, w, points, answers = p.X, np.ones(len(p.X)), [p.X], [mean(p.X)]
    for t in range(p.T):
        for k in range(K):
            X = X - p.lr(t) * p.grad(K * t + k, np.diag(1 / w) @ X)
        X, w = p.C @ X, p.C @ w
        points.append(np.diag(1 / w) @ X)
        answers.append(mean(X))
    return Run(points, answers)


def _rounds(p: Given, W: Array, weights: Array, K: int = 4) -> Run:
    """K times x = x - η(G + c); z = (X - x)/(Kη), c = c - z + Wz, X = R(X - Kηz)."""
    X, c, points = p.X, np.zeros_like(p.X), [p.X]
    for t in range(p.T):
        x, eta = X, p.lr(t)
        for k in range(K):
            x = x - eta * (p.grad(K * t + k, x) + c)
        z = (X - x) / (K * eta)
        c, X = c - z + W @ z, p.R @ (X - K * eta * z)
        points.append(X)
    return Run(points, [weights @ X for X in points])


def k_step_push_pull(p: Given) -> Run:
    """z is pushed."""
    return _rounds(p, p.C, left_perron(p.R))


def k_gt(p: Given) -> Run:
    """z is mixed with W."""
    return _rounds(p, p.R, np.full(len(p.R), 1 / len(p.R)))


def cpp(p: Given) -> Run:
    """X⁺ = mix_R(X - γY), Y⁺ = mix_C(Y) + G⁺ - G."""
    a, zeta = 1 / (1 + small.OMEGA[4]), 1 / (1 + 4 * small.USUAL[4])
    return _cpp(p, small.dither(4), a, zeta)


def _cpp(p: Given, Q: small.Compressor, a: float, zeta: float, fall: float = 1.0) -> Run:
    mix_R = small.Difference(p.R, Q, 0, p.X, zeta, a, fall)
    mix_C = small.Difference(p.C, Q, 1, 0 * p.X, zeta, a, fall)
    X, G = p.X, p.grad(0, p.X)
    Y, points = G, [X]
    for t in range(p.T):
        X = mix_R(t, X - p.lr(t) * Y)
        G_new = p.grad(t + 1, X)
        Y, G = mix_C(t + 1, Y) + G_new - G, G_new
        points.append(X)
    return Run(points, [left_perron(p.R) @ X for X in points])


def rcpp(p: Given) -> Run:
    """CPP with rounding, and a scale that falls."""
    return _cpp(p, small.rounding, 1.0, 0.5, 0.995)


def b_cpp(p: Given) -> Run:
    """X⁺ = mix_R(X - γY), Y⁺ = mix_C(Y + G⁺ - G), trackers without a memory."""
    zeta = 1 / (1 + 4 * small.USUAL[4])
    mix_R = small.Difference(p.R, small.nearest(4), 0, p.X, zeta, 1.0)
    mix_C = small.Direct(p.C, small.nearest(4), 1, zeta)
    X, G = p.X, p.grad(0, p.X)
    Y, points = G, [X]
    for t in range(p.T):
        X = mix_R(t, X - p.lr(t) * Y)
        G_new = p.grad(t + 1, X)
        Y, G = mix_C(t + 1, Y + G_new - G), G_new
        points.append(X)
    return Run(points, [left_perron(p.R) @ X for X in points])


def c_gt(p: Given) -> Run:
    """X⁺ = mix_W(X) - γY, Y⁺ = mix_W(Y) + G⁺ - G."""
    zeta = 1 / (1 + 4 * small.USUAL[4])
    mix_X = small.Difference(p.R, small.nearest(4), 0, p.X, zeta, 1.0)
    mix_Y = small.Difference(p.R, small.nearest(4), 1, 0 * p.X, zeta, 1.0)
    X, G = p.X, p.grad(0, p.X)
    Y, points = G, [X]
    for t in range(p.T):
        X = mix_X(t, X) - p.lr(t) * Y
        G_new = p.grad(t + 1, X)
        Y, G = mix_Y(t + 1, Y) + G_new - G, G_new
        points.append(X)
    return Run(points, [mean(X) for X in points])


def _compressed_dsgd(p: Given, mix: Callable[[int, Array], Array]) -> Run:
    """X⁺ = mix_W(X - γG)."""
    X, points = p.X, [p.X]
    for t in range(p.T):
        X = mix(t, X - p.lr(t) * p.grad(t, X))
        points.append(X)
    return Run(points, [mean(X) for X in points])


def choco_sgd(p: Given) -> Run:
    """By differences."""
    return _compressed_dsgd(p, small.Difference(p.R, small.top(1), 0, p.X, small.TENTH, 1.0))


def deepsqueeze(p: Given) -> Run:
    """By error feedback."""
    return _compressed_dsgd(p, small.Feedback(p.R, small.nearest(4), 0, 0.3))


def quantized_push_sum(p: Given) -> Run:
    """X⁺ = mix_C(X - γG(X/w)), w⁺ = w + ζ(Cw - w)."""
    a, zeta = 1 / (1 + small.OMEGA[4]), 1 / (1 + 4 * small.USUAL[4])
    mix = small.Difference(p.C, small.dither(4), 0, p.X, zeta, a)
    X, w, points, answers = p.X, np.ones(len(p.X)), [p.X], [mean(p.X)]
    for t in range(p.T):
        X = mix(t, X - p.lr(t) * p.grad(t, np.diag(1 / w) @ X))
        w = w + zeta * (p.C @ w - w)
        points.append(np.diag(1 / w) @ X)
        answers.append(mean(X))
    return Run(points, answers)


def lead(p: Given) -> Run:
    """V = X - ηG - ηD, D⁺ = D + γ/(2η)(V̂ - WV̂), X⁺ = X - ηG - ηD⁺."""
    gamma, a = 1 / (1 + 4 * small.USUAL[2]), 1 / (1 + small.OMEGA[2])
    H, D, X, points = p.X, np.zeros_like(p.X), p.X, [p.X]
    for t in range(p.T):
        eta, G = p.lr(t), p.grad(t, X)
        V = X - eta * G - eta * D
        u = small.uniforms(t, 0, range(len(V)), V.shape[1])
        q = np.array([small.dither(2)(v, r) for v, r in zip(V - H, u, strict=True)])
        hat, H = H + q, H + a * q
        D = D + gamma / (2 * eta) * (hat - p.R @ hat)
        X = X - eta * G - eta * D
        points.append(X)
    return Run(points, [mean(X) for X in points])


# By the names of the methods, those of the functions with - for _; and what is run otherwise.
REFERENCES: dict[str, Callable[[Given], Run]] = {
    **{k.replace("_", "-"): run for k, run in [*globals().items()] if _is_twin(k, run)},
    "sab": ab,
    **dict.fromkeys(("btpp", "stpp"), push_pull_original),
    "push-saga": push_diging_atc,  # what makes the gradients is not the recursion's business
    "ab-saga": push_pull,
    "ab-svrg": ab_cta,
    "push-svrg": add_opt,
}
