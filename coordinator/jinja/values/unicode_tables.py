#!/usr/bin/env python3
"""Writes unicode_{properties,case}.cc: what Python's str methods know of characters beyond ASCII.

python3 coordinator/jinja/values/unicode_tables.py properties > coordinator/jinja/values/unicode_properties.cc
python3 coordinator/jinja/values/unicode_tables.py case > coordinator/jinja/values/unicode_case.cc
"""

import sys
import unicodedata

CODE_POINTS = [c for c in range(0x80, 0x110000) if not 0xD800 <= c <= 0xDFFF]


def ranges(holds):
    """[first, last, stride] of the code points that `holds` accepts, greedily with stride 1 or 2."""
    found = []
    for c in (c for c in CODE_POINTS if holds(chr(c))):
        if found:
            first, last, stride = found[-1]
            if first == last and c - last in (1, 2):
                found[-1] = [first, c, c - last]
                continue
            if c - last == stride and first != last:
                found[-1][1] = c
                continue
        found.append([c, c, 1])
    return found


def mappings(convert):
    """[first, last, stride, delta] for one-to-one mappings, and (code point, text) for the others."""
    runs, special = [], []
    for c in CODE_POINTS:
        text = convert(chr(c))
        if text == chr(c):
            continue
        if len(text) != 1:
            special.append((c, text))
            continue
        delta = ord(text) - c
        if runs:
            first, last, stride, run_delta = runs[-1]
            if run_delta == delta and first == last and c - last in (1, 2):
                runs[-1] = [first, c, c - last, delta]
                continue
            if run_delta == delta and first != last and c - last == stride:
                runs[-1][1] = c
                continue
        runs.append([c, c, 1, delta])
    return runs, special


def emit(declaration, items):
    print(f"\n{declaration} = {{")
    line = "   "
    for item in items:
        if len(line) + len(item) + 2 > 100:
            print(line)
            line = "   "
        line += f" {item},"
    print(line + "\n};")


def emit_ranges(name, holds):
    emit(f"const CharacterRange k{name}[]", [f"{{0x{a:x}, 0x{b:x}, {s}}}" for a, b, s in ranges(holds)])
    print(f"const size_t k{name}Size = std::size(k{name});")


def emit_mappings(name, convert):
    runs, special = mappings(convert)
    emit(f"const CaseRange k{name}[]", [f"{{0x{a:x}, 0x{b:x}, {s}, {d}}}" for a, b, s, d in runs])
    print(f"const size_t k{name}Size = std::size(k{name});")
    escaped = [
        f'{{0x{c:x}, "{"".join(f"{chr(92)}x{b:02x}" for b in text.encode())}"}}' for c, text in special
    ]
    emit(f"const CaseSpecial k{name}Special[]", escaped or ['{0, ""}'])
    print(f"const size_t k{name}SpecialSize = std::size(k{name}Special);")


def main():
    if sys.argv[1:] not in (["properties"], ["case"]):
        return __doc__
    version = unicodedata.unidata_version
    print(f"// Written by unicode_tables.py from Unicode {version}, as Python {sys.version[:4]} has it.")
    print('#include <iterator>\n\n#include "coordinator/jinja/values/unicode_tables.h"\n')
    print("namespace tessera::coordinator::jinja {")
    print("// clang-format off")
    if sys.argv[1] == "properties":
        emit_ranges("NotPrintable", lambda c: not c.isprintable())
        emit_ranges("Alpha", str.isalpha)
        emit_ranges("Decimal", str.isdecimal)
        emit_ranges("DigitNotDecimal", lambda c: c.isdigit() and not c.isdecimal())
        emit_ranges("NumericNotDigit", lambda c: c.isnumeric() and not c.isdigit())
        emit_ranges("LowerCase", str.islower)
        emit_ranges("UpperCase", str.isupper)
    else:
        emit_mappings("ToLower", str.lower)
        emit_mappings("ToUpper", str.upper)
        emit_mappings("ToTitle", str.title)
    print("\n// clang-format on\n}  // namespace tessera::coordinator::jinja")
    return 0


if __name__ == "__main__":
    sys.exit(main())
