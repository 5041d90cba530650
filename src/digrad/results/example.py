"""The example that ``digrad init`` writes."""

EXAMPLE = """\
# An experiment: networks x algorithms x step sizes x seeds on one problem.
# Run it with: digrad run experiment.toml

name = "example"              # the run lands in runs/example
steps = 1500
lr = [0.1, 0.05]      # γ; S-PP gets γ/(nπ), see scale_by_n_pi
seeds = [0, 1, 2]             # repetitions: same problem, other samples
metrics = []                  # what to record, such as "loss"; empty: what is worth its cost.
                              # Methods are compared by the first
metrics_every = 10            # steps between records; 0: a hundredth of the run, or as they cost
scale_by_n_pi = true          # give γ/(nπ) to methods that move by nπ times the gradient
dtype = "float32"             # or "float64"
tf32 = false                  # on a GPU, multiply with 10 bits of mantissa: faster, less exact
precision = "full"            # or "bf16": forward and backward passes of a module in bfloat16
compile = "auto"              # "always" or "never": fuse steps with torch.compile
trials_at_once = 0            # 0: as many as fit into memory

[problem]
kind = "logistic"             # the paper's problem; also "quadratic", "libsvm",
                              # "images" and "characters": neural networks on MNIST, on text, ...
dim = 100
samples = 200                 # per node
batch = 1                     # samples per node and step

[schedule]
kind = "step-decay"           # also "constant", "milestones", "polynomial", "cosine", "warmup",
                              # "theorem"; `digrad list schedules` shows their keys
factor = 0.2                  # "decay of 80 %"
period = 300
# kind = "warmup"             # rise over some steps, then follow another schedule
# steps = 100
# then = { kind = "cosine", total = 1500 }

# [clock]                     # how long things take: metrics.csv then has the column time
# straggler = 5.0             # node 0 is five times slower
# latency = 0.5               # of a message; a gradient takes about 1.5

[[networks]]
topology = "erdos-renyi"      # `digrad list topologies`; or file = "mine.graphml"
n = 20
seed = 1
push_graph = "same"           # one-way links; "reverse" is the paper's text
params = { p = 0.5 }

[[networks]]
topology = "multi-sub-ring"
n = 20

[[algorithms]]
algorithm = "push-pull"       # `digrad list algorithms`
name = "S-PP"

[[algorithms]]
algorithm = "sgp"

[[algorithms]]
algorithm = "push-diging"
# lr = [0.02]         # instead of the experiment's
"""
