"""PageRank by power iteration on a random graph: `graph.py [NODES EDGES ROUNDS]`, 1.5 million nodes and 15 million edges."""

import sys

import numpy
from scipy.sparse import csr_matrix

NODES, EDGES, ROUNDS = map(int, sys.argv[1:] or (1_500_000, 15_000_000, 120))

draw = numpy.random.default_rng(1)
source = draw.integers(0, NODES, EDGES, dtype=numpy.int32)
target = (NODES * draw.random(EDGES) ** 3).astype(numpy.int32)
degree = numpy.bincount(source, minlength=NODES)
links = csr_matrix((1.0 / degree[source], (target, source)), shape=(NODES, NODES))
rank = numpy.full(NODES, 1.0 / NODES)
for _ in range(ROUNDS):
    rank = 0.15 / NODES + 0.85 * links.dot(rank)
print("rank:", rank.max())
