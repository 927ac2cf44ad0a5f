"""Records of which a tenth is read, beside objects that are made and dropped: `objects.py STEPS`."""

import random
import sys

RECORDS, BATCH = 300_000, 1000

table = {key: {"key": key, "body": bytes(400), "tags": [key, str(key)]} for key in range(RECORDS)}
draw, total = random.Random(1), 0
for step in range(0, int(sys.argv[1]), BATCH):
    made = [str(step + i) for i in range(BATCH)]
    for name in made:
        total += table[draw.randrange(RECORDS // 10)]["key"] + len(name)
print("total:", total)
