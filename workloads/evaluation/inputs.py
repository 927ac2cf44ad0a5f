"""Makes the input of a program: `inputs.py proteins|texts FOLDER`."""

import pathlib
import random
import sys


def proteins(folder):
    """A family of 40 relatives, aligned, and 60,000 sequences, of which one in a hundred is a relative too."""
    draw, kinds = random.Random(1), "ACDEFGHIKLMNPQRSTVWY"
    ancestor = draw.choices(kinds, k=250)

    def relative():
        return "".join(draw.choice(kinds) if draw.random() < 0.4 else kind for kind in ancestor)

    with open(folder / "family.afa", "w") as file:
        file.writelines(f">relative{number}\n{relative()}\n" for number in range(40))
    with open(folder / "all.fa", "w") as file:
        for number in range(60_000):
            others = "".join(draw.choices(kinds, k=draw.randrange(100, 400)))
            file.write(f">{number}\n{relative() + others if number % 100 == 0 else others}\n")


def texts(folder):
    """256 files of 1.2 MB each. Sentences repeat, words have no meaning."""
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdefghijklmnopqrstuvwxyz", k=draw.randrange(2, 10))) for _ in range(20_000)]
    sentences = [" ".join(draw.choices(words, k=16)).capitalize() + ".\n" for _ in range(20_000)]
    for number in range(256):
        (folder / f"{number}.txt").write_text("".join(draw.choices(sentences, k=12_000)))


if __name__ == "__main__":
    where = pathlib.Path(sys.argv[2])
    where.mkdir(parents=True, exist_ok=True)
    {"proteins": proteins, "texts": texts}[sys.argv[1]](where)
