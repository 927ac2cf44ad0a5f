"""PageRank on a random graph of 600,000 nodes and 6 million edges: `ranks.py ROUNDS`."""

import sys

import numpy
from scipy.sparse import csr_matrix

NODES, EDGES = 600_000, 6_000_000

draw = numpy.random.default_rng(1)
source = draw.integers(0, NODES, EDGES, dtype=numpy.int32)
target = (NODES * draw.random(EDGES) ** 3).astype(numpy.int32)
degree = numpy.bincount(source, minlength=NODES)
links = csr_matrix((1.0 / degree[source], (target, source)), shape=(NODES, NODES))
del source, target
rank = numpy.full(NODES, 1.0 / NODES)
for _ in range(int(sys.argv[1])):
    rank = 0.15 / NODES + 0.85 * links.dot(rank)
print("rank:", rank.max())
