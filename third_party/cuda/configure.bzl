"""Finds a CUDA toolkit, or makes do without: @local_cuda//:config.bzl says which.

TESSERA_CUDA=0 ignores a toolkit, =1 insists on one, unset takes it where it is: in CUDA_HOME, else
where deploy/install_cuda puts it, else in /usr/local/cuda. Its libraries may be in lib64 or, as PyPI's
wheels have them, in lib.
TESSERA_CUDA_ARCHS is a comma-separated list of compute capabilities.
"""

# Turing to Blackwell. defs.bzl adds PTX of 9.0, for GPUs that are not in the list.
_DEFAULT_ARCHS = "75,80,86,89,90,100,120"

_LIBRARY_FOLDERS = ["lib64", "lib"]

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
    srcs = ["lib/libcudart_static.a"],
    linkopts = ["-ldl", "-lrt", "-lpthread"],
    deps = [":headers"],
)
""".format(glob = _HEADER_GLOB)

_NOT_FOUND = """
cc_library(name = "headers")
cc_library(name = "cudart_static")
"""

def _library_folder(ctx, root):
    """The folder with the runtime that is linked into our programs, or None."""
    for folder in _LIBRARY_FOLDERS:
        if ctx.path("%s/%s/libcudart_static.a" % (root, folder)).exists:
            return "%s/%s" % (root, folder)
    return None

def _toolkit(ctx):
    home = ctx.os.environ.get("CUDA_HOME")
    if home:
        return home
    checkout = str(ctx.path(Label("//:WORKSPACE")).dirname)
    installed = checkout + "/.cache/cuda-13.0/nvidia/cu13"
    return installed if ctx.path(installed + "/bin/nvcc").exists else "/usr/local/cuda"

def _cuda_impl(ctx):
    root = _toolkit(ctx)
    wanted = ctx.os.environ.get("TESSERA_CUDA", "auto")
    nvcc = root + "/bin/nvcc"
    lib = _library_folder(ctx, root)
    found = ctx.path(nvcc).exists and lib != None and wanted != "0"
    if wanted == "1" and not found:
        missing = "%s/lib64/libcudart_static.a" % root if ctx.path(nvcc).exists else nvcc
        fail("TESSERA_CUDA=1, but there is no %s: set CUDA_HOME to the toolkit" % missing)
    if found:
        ctx.symlink(root + "/include", "include")
        ctx.symlink(lib, "lib")
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
