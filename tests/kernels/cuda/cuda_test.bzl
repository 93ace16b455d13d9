"""cuda_test: one test source for both platforms."""

load("@local_cuda//:config.bzl", "if_cuda")
load("//third_party:catch.bzl", "catch_test")
load("//third_party/cuda:defs.bzl", "EMULATED")

def cuda_test(name, srcs, kernels, deps = [], **kwargs):
    """NAME_emulated_test runs on the emulator, NAME_gpu_test on a GPU (skipped where there is none).

    Args:
      name: start of both names.
      srcs: files that use tests/kernels/cuda/test_device.h.
      kernels: the names of cuda_kernels rules.
      deps: targets for both.
      **kwargs: passed to both (data, ...).
    """
    catch_test(
        name = name + "_emulated_test",
        srcs = srcs,
        local_defines = EMULATED,
        deps = deps + [
            "//kernels/cuda:platform_emulated",
            "//tests/kernels/cuda:test_device",
        ] + [k + "_emulated" for k in kernels],
        **kwargs
    )
    catch_test(
        name = name + "_gpu_test",
        srcs = if_cuda(srcs, ["//tests/kernels/cuda:no_toolkit.cc"]),
        deps = deps + [
            "//tests/kernels/cuda:test_device",
        ] + if_cuda([k + "_gpu" for k in kernels]),
        **kwargs
    )
