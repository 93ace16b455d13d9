#!/usr/bin/env python3
"""Writes html_entities.cc: the named character references of HTML 5, as Python's html module knows them.

python3 coordinator/jinja/html_entities.py > coordinator/jinja/html_entities.cc
"""

import html.entities

COLUMNS = 96

HEAD = """// Written by html_entities.py; do not change by hand.

#include "coordinator/jinja/html_text.h"

namespace tessera::coordinator::jinja {

"""


def main():
    # A comma behind the name: it counts without its semicolon too ("&amp" beside "&amp;").
    known = html.entities.html5
    entries = []
    for name in sorted(n for n in known if n.endswith(";")):
        points = "+".join(f"{ord(c):x}" for c in known[name])
        entries.append(f"{name[:-1]}{',' if name[:-1] in known else ';'}{points} ")
    lines, line = [], ""
    for entry in entries:
        if len(line) + len(entry) > COLUMNS - 6:
            lines.append(line)
            line = ""
        line += entry
    lines.append(line)
    print(HEAD + "const char kHtmlEntities[] =")
    print("\n".join(f'    "{line}"' for line in lines) + ";")
    print("\n}  // namespace tessera::coordinator::jinja")


if __name__ == "__main__":
    main()
