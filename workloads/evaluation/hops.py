"""Breadth-first searches of a random graph of 600,000 nodes and 5 million edges: `hops.py SEARCHES`."""

import sys

import numpy
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import breadth_first_order

NODES, EDGES = 600_000, 5_000_000

draw = numpy.random.default_rng(1)
source = draw.integers(0, NODES, EDGES, dtype=numpy.int32)
target = draw.integers(0, NODES, EDGES, dtype=numpy.int32)
links = csr_matrix((numpy.ones(EDGES), (source, target)), shape=(NODES, NODES))
del source, target
reached = 0
for start in draw.integers(0, NODES, int(sys.argv[1])):
    reached += len(breadth_first_order(links, int(start), return_predecessors=False))
print("reached:", reached)
