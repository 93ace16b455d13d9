"""Finds the sources of xgrammar, or makes do without: @xgrammar//:config.bzl says which.

TESSERA_XGRAMMAR=0 ignores them, unset takes them where deploy/install_xgrammar puts them.
"""

_INSTALLED = "0.2.8, keys of rules and classes mended, states of parsers counted"  # deploy/install_xgrammar

_BUILD = """
package(default_visibility = ["//visibility:public"])

cc_library(
    name = "xgrammar",
    srcs = glob(["cpp/**/*.cc", "cpp/**/*.h", "picojson/*.h"], exclude = ["cpp/tvm_ffi/**"]),
    hdrs = glob(["include/**/*.h", "dlpack/**/*.h"]),
    copts = ["-std=c++17", "-w", "-DXGRAMMAR_LOG_CUSTOMIZE=1"] +
            ["-Iexternal/xgrammar/" + folder for folder in ("include", "picojson", "dlpack")],
    features = ["-supports_pic"],
    includes = ["include", "dlpack"],
    linkopts = ["-pthread"],
    linkstatic = True,
)
"""

def _xgrammar_impl(ctx):
    checkout = str(ctx.path(Label("//:WORKSPACE")).dirname)
    root = checkout + "/.cache/xgrammar"
    found = ctx.path(root + "/version").exists and ctx.os.environ.get("TESSERA_XGRAMMAR") != "0"
    if found and ctx.read(root + "/version").strip() != _INSTALLED:
        # buildifier: disable=print
        print("%s is of another deploy/install_xgrammar: run it again; going on without structured output" % root)
        found = False
    if found:
        for folder, source in [
            ("cpp", "cpp"),
            ("include", "include"),
            ("picojson", "3rdparty/picojson"),
            ("dlpack", "3rdparty/dlpack/include"),
        ]:
            ctx.symlink(root + "/" + source, folder)
    ctx.file("config.bzl", "XGRAMMAR_FOUND = %s\n" % found)
    ctx.file("BUILD.bazel", _BUILD if found else "")

xgrammar_configure = repository_rule(
    implementation = _xgrammar_impl,
    environ = ["TESSERA_XGRAMMAR"],
    local = True,
    configure = True,
)
