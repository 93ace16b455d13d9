"""cc_library and cc_binary as all packages use them.

Each file is compiled once: there is no second, position-independent object for a shared library that
nobody links. Headers of Abseil, protobuf and the standard library are precompiled.
"""

load("//third_party/precompiled:precompiled.bzl", "with_precompiled")

def cc_library(features = [], **kwargs):
    native.cc_library(
        features = features + ["-supports_pic"],
        linkstatic = True,
        **with_precompiled("system", kwargs)
    )

def cc_binary(features = [], **kwargs):
    native.cc_binary(
        features = features + ["-supports_pic"],
        **with_precompiled("system", kwargs)
    )
