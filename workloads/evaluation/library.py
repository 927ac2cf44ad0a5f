"""A library's catalogue with an index of words, in Python: `library.py SECONDS`.

60,000 texts of 40 words are held, each eight times over. Readers look for two words that are in many texts, five times a second,
and get the ten newest texts with both. Few words are in many texts, so most of the index is idle.
"""

import array
import collections
import random
import sys
import time

TEXTS, WORDS, RATE = 60_000, 30_000, 5

draw = random.Random(1)
names = [f"w{word}" for word in range(WORDS)]
# The first words are more frequent.
pool = [names[int(WORDS * draw.random() ** 3)] for _ in range(4 * WORDS)]
texts, index = [], collections.defaultdict(lambda: array.array("I"))
for number in range(TEXTS):
    text = draw.choices(pool, k=40)
    texts.append(" ".join(text) * 8)
    for word in set(text):
        index[word].append(number)

found, took, due = 0, 0.0, time.monotonic()
calls = int(RATE * float(sys.argv[1]))
for _ in range(calls):
    due += 1 / RATE
    time.sleep(max(0, due - time.monotonic()))
    begun = time.monotonic()
    one, other = (index[names[draw.randrange(WORDS // 100, WORDS // 50)]] for _ in range(2))
    for number in sorted(set(one).intersection(other))[-10:]:
        found += len(texts[number])
    took += time.monotonic() - begun
print(f"found: {found}, mean: {1000 * took / calls:.3f} ms")
