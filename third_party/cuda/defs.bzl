"""cuda_library: nvcc compiles each .cu once for all architectures; the result is a cc_library.

cuda_kernels: the same sources twice, by nvcc for GPUs and by g++ for the emulator.

cuda_host_code: C++ that calls the runtime or kernels, twice as well.
"""

load("@local_cuda//:config.bzl", "CUDA_ARCHS", "CUDA_FOUND", "CUDA_ROOT")
load("//third_party:cc.bzl", "cc_library")

# The local_defines of what is compiled for the emulator.
EMULATED = ["TESSERA_CUDA_EMULATED"]

# Runs "$@" behind the name of the file that gets what ptxas says; all else is shown.
_REPORTING = """
report=$1; shift
"$@" 2> "$report" || { cat "$report" >&2; exit 1; }
grep -v -e '^ptxas info' -e 'bytes stack frame' "$report" >&2 || true
"""

def _nvcc_objects_impl(ctx):
    contexts = [dep[CcInfo].compilation_context for dep in ctx.attr.deps]
    headers = depset(ctx.files.hdrs, transitive = [c.headers for c in contexts])
    objects = []
    reports = []
    for source in ctx.files.srcs:
        object = ctx.actions.declare_file("_nvcc/%s/%s.o" % (ctx.label.name, source.basename))
        args = ctx.actions.args()
        args.add_all(["-c", "-std=c++17", "-O3", "-lineinfo", "--compress-mode=size", "-Xcompiler=-fPIC"])
        args.add_all(["--expt-relaxed-constexpr", "-I."])

        # Several threads would mix up their reports.
        args.add("-Xptxas=-v" if ctx.attr.ptxas_report else "--threads=2")
        args.add_all(ctx.attr.codes, format_each = "-gencode=%s")
        args.add_all(ctx.attr.copts)
        args.add_all(depset(transitive = [c.defines for c in contexts]), format_each = "-D%s")
        args.add_all(depset(transitive = [c.includes for c in contexts]), before_each = "-I")
        args.add_all(depset(transitive = [c.quote_includes for c in contexts]), before_each = "-I")
        system = depset(transitive = [c.system_includes for c in contexts])
        args.add_all(system, before_each = "-isystem")
        args.add(source)
        args.add("-o", object)
        nvcc = CUDA_ROOT + "/bin/nvcc"
        action = dict(
            inputs = depset([source], transitive = [headers]),
            mnemonic = "Nvcc",
            progress_message = "Compiling CUDA %s" % source.short_path,
            env = {"PATH": "/usr/local/bin:/usr/bin:/bin"},
        )
        if ctx.attr.ptxas_report:
            report = ctx.actions.declare_file("_nvcc/%s/%s.ptxas" % (ctx.label.name, source.basename))
            ctx.actions.run_shell(
                command = _REPORTING,
                arguments = [report.path, nvcc, args],
                outputs = [object, report],
                **action
            )
            reports.append(report)
        else:
            ctx.actions.run(executable = nvcc, arguments = [args], outputs = [object], **action)
        objects.append(object)
    return [DefaultInfo(files = depset(objects)), OutputGroupInfo(ptxas = depset(reports))]

_nvcc_objects = rule(
    implementation = _nvcc_objects_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu"]),
        "hdrs": attr.label_list(allow_files = True),
        "deps": attr.label_list(providers = [CcInfo]),
        "codes": attr.string_list(),
        "copts": attr.string_list(),
        "ptxas_report": attr.bool(),
    },
)

# PTX that GPUs without code of their own compile at load. 9.0's reaches 10.x, too; that of the newest
# architecture would reach only what is newer still.
_PTX_ARCH = "90"

def _codes(archs):
    codes = ["arch=compute_%s,code=sm_%s" % (a, a) for a in archs]
    return codes + ["arch=compute_%s,code=compute_%s" % (_PTX_ARCH, _PTX_ARCH)]

def cuda_library(
        name,
        srcs,
        hdrs = [],
        deps = [],
        archs = CUDA_ARCHS,
        copts = [],
        ptxas_report = False,
        **kwargs):
    """CUDA C++17 sources as a library. It is never built by wildcard: a target that wants it says
    deps = if_cuda([":it"]), so that the build stays green without a toolkit.

    Args:
      name: the library; without a toolkit it holds headers only.
      srcs: .cu files.
      hdrs: headers that also a host compiler can read.
      deps: cc_library targets.
      archs: compute capabilities ("90"); PTX of 9.0 is added for GPUs that are not among them.
      copts: more flags for nvcc.
      ptxas_report: keeps what ptxas says of registers and spills, as NAME_ptxas: a file per source.
      **kwargs: passed to cc_library (visibility, ...).
    """
    tags = kwargs.pop("tags", []) + ["manual"]
    if ptxas_report:
        native.filegroup(
            name = name + "_ptxas",
            srcs = [name + "_objects"] if CUDA_FOUND else [],
            output_group = "ptxas",
            tags = tags,
            visibility = ["//tests:__subpackages__"],
        )
    if not CUDA_FOUND:
        native.cc_library(name = name, hdrs = hdrs, deps = deps, tags = tags, **kwargs)
        return
    _nvcc_objects(
        name = name + "_objects",
        srcs = srcs,
        hdrs = hdrs,
        deps = deps + ["@local_cuda//:headers"],
        codes = _codes(archs),
        copts = copts,
        ptxas_report = ptxas_report,
        tags = tags,
        visibility = ["//visibility:private"],
    )
    native.cc_library(
        name = name,
        srcs = [name + "_objects"],
        hdrs = hdrs,
        deps = deps + ["@local_cuda//:cudart_static"],
        linkstatic = True,
        alwayslink = True,
        tags = tags,
        **kwargs
    )

def cuda_kernels(name, srcs, hdrs = [], deps = [], copts = [], ptxas_report = False, **kwargs):
    """Sources of kernels/cuda/platform.h's language for both platforms: NAME_gpu is a cuda_library,
    NAME_emulated a cc_library with g++'s code for the emulator, which needs no toolkit.

    Args:
      name: start of both names.
      srcs: .cu files.
      hdrs: their host interface.
      deps: cc_library targets for both; //kernels/cuda:platform comes by itself.
      copts: more flags for nvcc.
      ptxas_report: as in cuda_library; for kernels that tests/kernels/cuda/spills_test reads about.
      **kwargs: passed to both (visibility, testonly, ...).
    """
    cuda_library(
        name = name + "_gpu",
        srcs = srcs,
        hdrs = hdrs,
        deps = deps + ["//kernels/cuda:platform"],
        copts = copts,
        ptxas_report = ptxas_report,
        **kwargs
    )

    # cc_library takes no .cu files: a .cc of one line includes each.
    emulated = []
    for source in srcs:
        emulated.append("%s_emulated/%s.cc" % (name, source))
        native.genrule(
            name = "%s_emulated_%s" % (name, source),
            outs = [emulated[-1]],
            cmd = "echo '#include \"%s/%s\"' > $@" % (native.package_name(), source),
        )
    cc_library(
        name = name + "_emulated",
        srcs = emulated,
        hdrs = hdrs,
        textual_hdrs = srcs,
        copts = ["-Wno-unknown-pragmas"],
        local_defines = EMULATED,
        deps = deps + ["//kernels/cuda:platform_emulated"],
        **kwargs
    )

def cuda_host_code(name, srcs, hdrs = [], deps = [], kernels = [], **kwargs):
    """Host code that includes kernels/cuda/runtime.h, for both platforms: NAME_gpu against CUDA's
    runtime, where a toolkit is found, and NAME_emulated against the emulator's.

    Args:
      name: start of both names.
      srcs: .cc files.
      hdrs: their interface.
      deps: cc_library targets for both.
      kernels: the names of cuda_kernels and cuda_host_code rules that are called.
      **kwargs: passed to both (visibility, testonly, ...).
    """
    cc_library(
        name = name + "_emulated",
        srcs = srcs,
        hdrs = hdrs,
        local_defines = EMULATED,
        deps = deps + ["//kernels/cuda:platform_emulated"] + [k + "_emulated" for k in kernels],
        **kwargs
    )
    cc_library(
        name = name + "_gpu",
        srcs = srcs if CUDA_FOUND else [],
        hdrs = hdrs,
        deps = deps + ["//kernels/cuda:platform", "@local_cuda//:cudart_static"] +
               [k + "_gpu" for k in kernels],
        tags = kwargs.pop("tags", []) + ["manual"],
        **kwargs
    )
