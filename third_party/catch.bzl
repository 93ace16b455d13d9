"""catch_test: a Catch2 test binary. fuzz_test: an LLVMFuzzerTestOneInput function with a driver."""

load("//third_party:cc.bzl", "COLD")
load("//third_party/precompiled:precompiled.bzl", "with_precompiled")

def catch_test(name, srcs = None, deps = [], size = "small", **kwargs):
    """A cc_test with our main, which reports each TEST_CASE to Bazel's test.xml.

    Args:
      name: ends in _test.
      srcs: files that include <catch2/catch.hpp>; NAME.cc, where they are not named.
      deps: what is tested.
      size: Bazel's test size; small allows 60 s.
      **kwargs: passed to cc_test (data, tags, args, copts, ...).
    """
    attributes = with_precompiled("system_and_catch", dict(
        kwargs,
        name = name,
        srcs = [name + ".cc"] if srcs == None else srcs,
        size = size,
        deps = deps + ["//tests:catch_main"],
    ))
    native.cc_test(**dict(attributes, copts = attributes.get("copts", []) + COLD))

def fuzz_test(
        name,
        srcs = None,
        deps = [],
        seconds = 10,
        max_len = 4096,
        tags = [],
        **kwargs):
    """A parser's fuzzer: `srcs` define LLVMFuzzerTestOneInput.

    In an ordinary build //tests:fuzz_main runs the corpus, then mutates it for some seconds from a
    fixed seed. With --config=fuzz the same target is a libFuzzer binary; both take these flags.

    Args:
      name: ends in _fuzz_test; the seed inputs of STEM_fuzz_test are in the folder STEM_corpus.
      srcs: the fuzzer; STEM_fuzz.cc, where they are not named.
      deps: what is fuzzed.
      seconds: how long mutations go on.
      max_len: no mutated input is longer, in bytes.
      tags: added to "fuzz".
      **kwargs: passed to cc_test.
    """
    args = ["-max_total_time=%d" % seconds, "-seed=1", "-max_len=%d" % max_len]
    data = kwargs.pop("data", [])
    stem = name[:-len("_fuzz_test")]
    corpus = stem + "_corpus"
    files = native.glob([corpus + "/**"], allow_empty = True)
    if not files:
        fail("fuzz_test %s: no files in the corpus folder %s" % (name, corpus))
    data = data + files
    args.append(native.package_name() + "/" + corpus)
    native.cc_test(**with_precompiled("system", dict(
        kwargs,
        name = name,
        srcs = [stem + "_fuzz.cc"] if srcs == None else srcs,
        size = kwargs.pop("size", "small"),
        args = args,
        data = data,
        linkopts = select({
            "//third_party:fuzz": ["-fsanitize=fuzzer"],
            "//conditions:default": [],
        }),
        tags = tags + ["fuzz"],
        deps = deps + select({
            "//third_party:fuzz": [],
            "//conditions:default": ["//tests:fuzz_main"],
        }),
    )))
