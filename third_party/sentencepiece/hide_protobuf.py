#!/usr/bin/env python3
"""hide_protobuf.py IN.so OUT.so: a copy of a shared library that keeps its protobuf to itself.

Debian's libsentencepiece contains, and exports, an old protobuf-lite of its own. In a process that
also has libprotobuf, the dynamic linker would mix the two, and such a process dies before main. In
the copy those symbols are marked hidden: the library still finds them, nobody else does (elf(5),
STV_HIDDEN; glibc skips hidden definitions and binds hidden references to the object itself).
The copy gets a name of its own, so that a program never takes the distribution's for it.
"""

import struct
import sys

SHT_DYNSYM = 11
SHN_UNDEF = 0
STV_HIDDEN = 2
SYMBOL = struct.Struct("<IBBHQQ")  # name, info, other, section, value, size
SECTION = struct.Struct("<IIQQQQIIQQ")  # name, type, flags, address, offset, size, link, ...
OLD_NAME = b"libsentencepiece.so.0\0"
NEW_NAME = b"libtessera_spiece.so\0"  # fits into the old one's place
PROTOBUF = b"6google8protobuf"  # as the C++ ABI mangles google::protobuf


def sections(elf):
    offset = struct.unpack_from("<Q", elf, 0x28)[0]
    size, count = struct.unpack_from("<HH", elf, 0x3A)
    return [SECTION.unpack_from(elf, offset + i * size) for i in range(count)]


def hide(elf):
    """Marks the symbols in `elf`, a bytearray; returns how many."""
    if elf[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    table = sections(elf)
    hidden = 0
    for section in table:
        if section[1] != SHT_DYNSYM:
            continue
        start, size = section[4], section[5]
        names = table[section[6]][4]
        for at in range(start, start + size, SYMBOL.size):
            name, info, other, defined_in, value, length = SYMBOL.unpack_from(elf, at)
            text = elf[names + name : elf.index(0, names + name)]
            if defined_in != SHN_UNDEF and PROTOBUF in text:
                other = (other & ~3) | STV_HIDDEN
                SYMBOL.pack_into(elf, at, name, info, other, defined_in, value, length)
                hidden += 1
    return hidden


def rename(elf):
    """Gives the library in `elf` its new SONAME."""
    at = elf.find(OLD_NAME)
    if at < 0 or elf.find(OLD_NAME, at + 1) >= 0:
        raise ValueError("the library's name is not where it is expected")
    elf[at : at + len(OLD_NAME)] = NEW_NAME.ljust(len(OLD_NAME), b"\0")


def main():
    with open(sys.argv[1], "rb") as source:
        elf = bytearray(source.read())
    hide(elf)
    rename(elf)
    with open(sys.argv[2], "wb") as copy:
        copy.write(elf)


if __name__ == "__main__":
    main()
