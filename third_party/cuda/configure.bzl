"""Finds a CUDA toolkit, or makes do without: @local_cuda//:config.bzl says which.

TESSERA_CUDA=0 ignores a toolkit, =1 insists on one, unset takes it where it is. CUDA_HOME overrides
/usr/local/cuda. TESSERA_CUDA_ARCHS is a comma-separated list of compute capabilities.
"""

_DEFAULT_ARCHS = "80,86,89,90a"

_CONFIG = '''"""Written by //third_party/cuda:configure.bzl."""

CUDA_FOUND = {found}
CUDA_ROOT = "{root}"
CUDA_ARCHS = {archs}

def if_cuda(yes, no = []):
    """`yes` where a toolkit is found and --define=cuda=off is not given, else `no`."""
    if not CUDA_FOUND:
        return no
    return select({{"@local_cuda//:off": no, "//conditions:default": yes}})
'''

_HEADER_GLOB = 'glob(["include/**/*.h", "include/**/*.hpp", "include/**/*.inl"])'

_FOUND = """
cc_library(name = "headers", hdrs = {glob}, includes = ["include"])
cc_library(
    name = "cudart_static",
    srcs = ["lib64/libcudart_static.a"],
    linkopts = ["-ldl", "-lrt", "-lpthread"],
    deps = [":headers"],
)
""".format(glob = _HEADER_GLOB)

_NOT_FOUND = """
cc_library(name = "headers")
cc_library(name = "cudart_static")
"""

def _cuda_impl(ctx):
    root = ctx.os.environ.get("CUDA_HOME") or "/usr/local/cuda"
    wanted = ctx.os.environ.get("TESSERA_CUDA", "auto")
    found = ctx.path(root + "/bin/nvcc").exists and wanted != "0"
    if wanted == "1" and not found:
        fail("TESSERA_CUDA=1, but there is no %s/bin/nvcc: set CUDA_HOME to the toolkit" % root)
    if found:
        ctx.symlink(root + "/include", "include")
        ctx.symlink(root + "/lib64", "lib64")
    archs = (ctx.os.environ.get("TESSERA_CUDA_ARCHS") or _DEFAULT_ARCHS).split(",")
    root = root if found else ""
    ctx.file("config.bzl", _CONFIG.format(found = found, root = root, archs = archs))
    ctx.file("BUILD.bazel", "\n".join([
        'package(default_visibility = ["//visibility:public"])',
        'config_setting(name = "off", define_values = {"cuda": "off"})',
        _FOUND if found else _NOT_FOUND,
    ]))

cuda_configure = repository_rule(
    implementation = _cuda_impl,
    environ = ["CUDA_HOME", "TESSERA_CUDA", "TESSERA_CUDA_ARCHS"],
    local = True,
    configure = True,
)
