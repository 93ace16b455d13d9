"""What the sources of a path beyond AVX2 are compiled with, those of emulated tiles too."""

AVX512_FLAGS = [
    "-mavx512f",
    "-mavx512bw",
    "-mavx512dq",
    "-mavx512vl",
    # g++ 12's own AVX-512 headers read what they call undefined on purpose.
    "-Wno-maybe-uninitialized",
    "-Wno-uninitialized",
]

AVX512_BF16_FLAGS = AVX512_FLAGS + [
    "-mavx512bf16",
    "-mavx512vbmi",
]
