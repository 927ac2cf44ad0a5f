"""Unpacks a source tree for a build of some minutes: `tree.py FOLDER FILES OBJECT_MIB`. Like a kernel's: large headers that every
file includes, small files, debug information with all macros, and a module linked from every eight objects. OBJECT_MIB are added
to the debug information of each object: what a build writes stays in the page cache."""

import pathlib
import sys

folder, files, object_mib = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
OF_MODULE, MACROS, FUNCTIONS = 8, 30000, 150
folder.mkdir(parents=True)
(folder / "config.h").write_text(
    "".join(f"#define CONFIG_OPTION_{i}_OF_SUBSYSTEM_{i % 97} (({i} << {i % 7}) | {i * 7919})\n" for i in range(MACROS))
)
for file in range(files):
    text = ['#include "config.h"']
    for of in range(FUNCTIONS):
        text.append(
            f"struct s{of} {{ int a{of}, b{of}; char name{of}[{of % 50 + 8}]; struct s{of} *next{of}; }};\n"
            f"int f{file}_{of}(struct s{of} *text, int n) {{ int sum = {of}; for (int i = 0; i < n; i++) {{\n"
            f"  sum += text->name{of}[i % 8] * (i ^ {of}); if (sum % {of + 3} == 0) sum ^= n;\n"
            f"  switch (sum % 7) {{ case 0: sum += {file}; break; case 1: sum -= i; break; default: sum ^= {of}; }} }}\n"
            f"  return sum + text->a{of}; }}"
        )
    (folder / f"part{file}.c").write_text("\n".join(text) + "\n")
(folder / "more.s").write_text(f'.section .debug_more, "", @progbits\n.fill {object_mib << 17}, 8, 0x{0x6C6F7774696465:x}\n')
rules = ["%.o: %.c config.h", "\t{ $(CC1) -quiet -O0 -g3 $< -o - && cat more.s; } | $(AS) -o $@"]
modules = []
for first in range(0, files, OF_MODULE):
    objects = " ".join(f"part{of}.o" for of in range(first, min(first + OF_MODULE, files)))
    if modules:
        # make would link all modules in the end, a kernel's build links each folder's objects when they are there.
        rules.append(f"{objects}: | {modules[-1]}")
    modules.append(f"module{first // OF_MODULE}.ko")
    rules += [f"{modules[-1]}: {objects}", "\t$(LD) -r $^ -o $@"]
(folder / "Makefile").write_text("\n".join(["all: " + " ".join(modules), *rules]) + "\n")
