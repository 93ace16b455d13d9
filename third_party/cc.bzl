"""cc_library and cc_binary as all packages use them.

Each file is compiled once: there is no second, position-independent object for a shared library that
nobody links. Headers of Abseil, protobuf and the standard library are precompiled. A library that names no
files has those of its own name that are there: NAME.h, NAME.cc.
"""

load("//third_party/precompiled:precompiled.bzl", "with_precompiled")

# For what no request passes through: flags, files, plans and their texts, the set-up of a process; and for
# tests. A fifth of a file's time to compile, for a speed that nobody misses.
COLD = select({
    "//third_party:opt": ["-O1"],
    "//conditions:default": [],
})

def _library(kwargs, copts):
    if "srcs" not in kwargs and "hdrs" not in kwargs:
        kwargs = dict(
            kwargs,
            srcs = native.glob([kwargs["name"] + ".cc"], allow_empty = True),
            hdrs = native.glob([kwargs["name"] + ".h"], allow_empty = True),
        )
    attributes = with_precompiled("system", kwargs)
    native.cc_library(**dict(
        attributes,
        copts = attributes.get("copts", []) + copts,
        features = kwargs.get("features", []) + ["-supports_pic"],
        linkstatic = True,
    ))

def cc_library(**kwargs):
    _library(kwargs, [])

def cold_cc_library(**kwargs):
    _library(kwargs, COLD)

def cc_binary(features = [], **kwargs):
    native.cc_binary(
        features = features + ["-supports_pic"],
        **with_precompiled("system", kwargs)
    )
