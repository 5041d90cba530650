"""How long the theory takes, in a fresh process per figure, next to a plain NumPy baseline.

Run with ``make bench`` or ``python benchmarks/theory.py``. Nothing here asserts a time.
"""

import platform
import resource
import subprocess
import sys
import time

CASES = {
    "analyze a flower, n = 20": "net = weigh(multi_sub_ring(20))",
    "analyze a nested ring, n = 20": "net = weigh(multi_sub_ring(20, 'nested'))",
    "Erdos-Renyi n = 1000, p = 0.02": "net = weigh(erdos_renyi(1000, 0.02))",
    "directed ring n = 1000": "net = weigh(directed_ring(1000))",
    "path n = 300": "net = weigh(path(300))",
    "sparse digraph n = 3000, 10 links each": "net = weigh(sparse(3000, 10))",
    "sparse digraph n = 100 000, 10 links each": "net = weigh(sparse(100_000, 10))",
}

PRELUDE = """
import resource, time
import numpy as np
from digrad.networks import *
from digrad.theory import constants
from digrad.base.streams import Draws

def sparse(n, degree):
    # a cycle through all nodes and degree - 1 random links out of each: unbalanced in-degrees
    senders = np.repeat(np.arange(n), degree - 1)
    ring = np.stack([np.arange(n), (np.arange(n) + 1) % n], axis=1)
    links = np.stack([senders, Draws(0).integers(n, len(senders))], axis=1)
    return Digraph(n, np.concatenate([ring, links]))

constants(weigh(directed_ring(3)))  # imports and first calls are not what is measured
"""

MEASURE = """
begin = time.perf_counter()
found = constants(net)
seconds = time.perf_counter() - begin
widest = max(b.relative_width for k, b in found.values.items() if k not in found.notes)
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
left = ', '.join(found.notes) or 'nothing'
print(f'{seconds:9.3f} s  widest bracket {widest:.1e}  peak {memory:.2f} GiB  left open: {left}')
"""

BASELINE = """
import time
import numpy as np
from digrad.networks import *
net = weigh(multi_sub_ring(20))
R, C, n = net.R.toarray(), net.C.toarray(), 20

def plain():
    # the same constants by a loop over matrix powers until terms fall below 1e-16, no proof
    w, V = np.linalg.eig(R.T); pR = np.abs(np.real(V[:, np.argmax(w.real)])); pR /= pR.sum()
    w, V = np.linalg.eig(C); pC = np.abs(np.real(V[:, np.argmax(w.real)])); pC /= pC.sum()
    Rt, Ct, Pi = R - pR[None, :], C - pC[:, None], np.eye(n) - pC[:, None]
    Q, B, A0 = Rt.copy(), Rt @ Pi, np.zeros((n, n))
    sums = np.zeros(4)
    for t in range(1, 10_000):
        A1 = B @ Ct
        a, b, d = (np.linalg.norm(M, 2) for M in (A0, B, A1 - A0))
        sums += a, b * b, d * d, d
        if max(b, d) < 1e-16 and t > 2:
            return sums
        Q = Q @ Rt
        A0, B = A1, B @ Ct + Q @ Pi
    return sums

plain()
begin = time.perf_counter()
plain()
print(f'{time.perf_counter() - begin:9.3f} s')
"""


def run(code: str) -> str:
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return out.stdout.strip()


def start_up(command: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-m", "digrad", *command], capture_output=True, check=True)
    return time.perf_counter() - begin


def main() -> None:
    print(f"{platform.machine()}, Python {platform.python_version()}")
    for name, network in CASES.items():
        print(f"{name:45s} {run(PRELUDE + network + MEASURE)}", flush=True)
    print(f"{'N5..N8 of the flower by a plain NumPy loop':45s} {run(BASELINE)}")
    for command in (
        ["--help"],
        ["analyze", "directed-ring"],
        ["analyze", "directed-ring", "-n", "100000"],
    ):
        best = min(start_up(command) for _ in range(3))
        print(f"{'digrad ' + ' '.join(command):45s} {best:9.3f} s")
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    print(f"largest process: {children:.2f} GiB")


if __name__ == "__main__":
    main()
