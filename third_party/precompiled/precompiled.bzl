"""Headers of the system that are parsed once for all files: GCC's precompiled headers.

A file that is compiled `with_precompiled` starts with //third_party/precompiled:NAME.hh, from what the
compiler made of it. Includes of these headers in the file itself cost nothing then; they are written all
the same, as --define=precompiled=off shows. Where the flags of a file differ in what GCC minds
(-m..., -fPIC) it would read the text of NAME.hh instead: files with -m... are left out.
"""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _precompiled_header_impl(ctx):
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )

    # GCC takes NAME.hh.gch only where it would have found NAME.hh.
    header = ctx.actions.declare_file(ctx.label.name + ".hh")
    ctx.actions.expand_template(output = header, template = ctx.file.header, substitutions = {})
    compiled = ctx.actions.declare_file(ctx.label.name + ".hh.gch")
    contexts = [dep[CcInfo].compilation_context for dep in ctx.attr.deps]
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        system_include_directories = depset(transitive = [c.system_includes for c in contexts]),
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts,
        source_file = header.path,
        output_file = compiled.path,
    )
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
        ),
        arguments = cc_common.get_memory_inefficient_command_line(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
            variables = variables,
        ),
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
            variables = variables,
        ),
        # Other versions of the packages make another one.
        inputs = depset(
            [header, ctx.file._versions],
            transitive = [toolchain.all_files] + [c.headers for c in contexts],
        ),
        outputs = [compiled],
        mnemonic = "CppPrecompile",
        progress_message = "Precompiling %s" % ctx.file.header.short_path,
    )
    headers = depset([header, compiled])
    return [
        DefaultInfo(files = headers),
        CcInfo(compilation_context = cc_common.create_compilation_context(headers = headers)),
    ]

precompiled_header = rule(
    implementation = _precompiled_header_impl,
    attrs = {
        "header": attr.label(allow_single_file = [".hh"], mandatory = True),
        "deps": attr.label_list(providers = [CcInfo]),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
        "_versions": attr.label(default = "@system//:versions.txt", allow_single_file = True),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)

def with_precompiled(name, kwargs):
    """The attributes of a cc_library, cc_binary or cc_test whose files start with NAME.hh.

    Args:
      name: a precompiled_header of this package.
      kwargs: the attributes; `precompiled = False` for files that cannot live with Abseil's headers.

    Returns:
      the attributes for Bazel's own rule.
    """
    changed = dict(kwargs)
    wanted = changed.pop("precompiled", True)
    copts = kwargs.get("copts", [])
    if not wanted or not kwargs.get("srcs") or any([flag.startswith("-m") for flag in copts]):
        return changed
    changed["copts"] = select({
        "//third_party/precompiled:off": [],
        "//conditions:default": ["-include", "$(GENDIR)/third_party/precompiled/%s.hh" % name],
    }) + copts
    changed["deps"] = kwargs.get("deps", []) + select({
        "//third_party/precompiled:off": [],
        "//conditions:default": ["//third_party/precompiled:" + name],
    })
    return changed
