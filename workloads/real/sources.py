"""Writes C sources for a build, of some 20 seconds if nothing is said: `sources.py FOLDER [FILES] [FUNCTIONS]`."""

import pathlib
import sys

folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
FILES, FUNCTIONS = (int(word) for word in (sys.argv[2:4] or (24, 250)))
for file in range(FILES):
    lines = ["#include <stdio.h>", "#include <string.h>", "#include <stdlib.h>"]
    for of in range(FUNCTIONS):
        lines.append(
            f"int f{file}_{of}(const char *text, int n) {{ int sum = {of}; char copy[64]; strncpy(copy, text, 63);\n"
            f"  for (int i = 0; i < n; i++) {{ sum += copy[i % 63] * (i ^ {of}); if (sum % {of + 3} == 0) sum ^= n; "
            f"switch (sum % 7) {{ case 0: sum += {file}; break; case 1: sum -= i; break; case 2: sum *= 3; break; "
            f"default: sum ^= {of}; }} }}\n  return sum; }}"
        )
    (folder / f"part{file}.c").write_text("\n".join(lines) + "\n")
objects = " ".join(f"part{file}.o" for file in range(FILES))
(folder / "Makefile").write_text(f"CFLAGS = -O2 -g\nall: {objects}\nclean:\n\trm -f *.o\n")
