"""Breadth-first searches of a random graph: `search.py [NODES EDGES SEARCHES]`, 2 million nodes and 16 million edges."""

import sys

import numpy
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import breadth_first_order

NODES, EDGES, SEARCHES = map(int, sys.argv[1:] or (2_000_000, 16_000_000, 12))

draw = numpy.random.default_rng(1)
source = draw.integers(0, NODES, EDGES, dtype=numpy.int32)
target = draw.integers(0, NODES, EDGES, dtype=numpy.int32)
links = csr_matrix((numpy.ones(EDGES, dtype=numpy.int8), (source, target)), shape=(NODES, NODES))
reached = 0
for start in draw.integers(0, NODES, SEARCHES):
    reached += len(breadth_first_order(links, int(start), return_predecessors=False))
print("reached:", reached)
