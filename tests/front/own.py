"""A problem and a topology as users write them, in text."""

PROBLEM = """
class Away:
    def __init__(self, nodes, far=2.0):
        self.nodes, self.dim, self.far = nodes, 3, far
    def start(self):
        return torch.zeros(self.dim)
    def sample(self, sampler, steps):
        return sampler.indices(steps, 7, 1)
    def gradient(self, x, sample, rows):
        return x - self.far + 0.1 * (sample - 3)
    def loss(self, x):
        return (x - self.far).square().sum(-1) / 2
    def full_gradient(self, x):
        return x - self.far
"""
TOPOLOGY = """
def hub(n, more=1):
    ring = [(k, (k + 1) % n) for k in range(n)]
    return dg.Digraph(n, [*ring, *((1 + k, 0) for k in range(more))])
"""
