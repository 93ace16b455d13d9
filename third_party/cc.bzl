"""cc_library and cc_binary as all packages use them.

Each file is compiled once: there is no second, position-independent object for a shared library that
nobody links.
"""

def cc_library(features = [], **kwargs):
    native.cc_library(
        features = features + ["-supports_pic"],
        linkstatic = True,
        **kwargs
    )

def cc_binary(features = [], **kwargs):
    native.cc_binary(
        features = features + ["-supports_pic"],
        **kwargs
    )
