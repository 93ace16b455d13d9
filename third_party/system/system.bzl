"""The distribution's libraries as cc_library targets: @system//:grpc, @system//:absl, ...

A library found by pkg-config (or by its header, where it ships no .pc file) becomes a cc_library of
link options: its headers are already in the compiler's own path. --define=link=static takes each
archive that the distribution ships and leaves the rest shared. A library that is not installed
fails only the targets that use it, with the package to install.
"""

_ABSL = [
    "absl_" + module
    for module in [
        "btree",
        "cleanup",
        "flat_hash_map",
        "flat_hash_set",
        "hash",
        "inlined_vector",
        "random_random",
        "span",
        "status",
        "statusor",
        "str_format",
        "strings",
        "time",
    ]
]

def _library(deb, pkgs = [], header = None, linkopts = [], wrapper = None, versions = {}):
    return struct(
        deb = deb,
        pkgs = pkgs,
        header = header,
        linkopts = linkopts,
        wrapper = wrapper,
        versions = versions,
    )

# pkgs: pkg-config modules. header: where there is no module, the file that shows it is installed.
# wrapper: a package of ours whose target is used instead of the library as it is.
# versions: major version of the first module -> a target of ours that comes with it.
_LIBRARIES = {
    "absl": _library("libabsl-dev", pkgs = _ABSL),
    "boost_asio": _library(
        "libboost1.81-dev | libboost-dev, libboost-system1.81-dev | libboost-system-dev",
        header = "boost/beast.hpp",
        linkopts = ["-lboost_system", "-pthread"],
    ),
    "boost_context": _library(
        "libboost-context1.81-dev | libboost-context-dev",
        header = "boost/context/fiber.hpp",
        linkopts = ["-lboost_context"],
    ),
    "catch2": _library("catch2", pkgs = ["catch2"], versions = {"3": "third_party/catch2:version_3"}),
    "cli11": _library("libcli11-dev", pkgs = ["CLI11"]),
    "coin": _library("coinor-libcbc-dev", pkgs = ["cbc", "clp"]),
    "dnnl": _library("libdnnl-dev", header = "dnnl.hpp", linkopts = ["-ldnnl"]),
    "grpc": _library("libgrpc++-dev", pkgs = ["grpc++"]),
    "grpc_reflection": _library(
        "libgrpc++-dev",
        pkgs = ["grpc++"],
        linkopts = ["-Wl,--no-as-needed", "-lgrpc++_reflection", "-Wl,--as-needed"],
    ),
    "json": _library("nlohmann-json3-dev", pkgs = ["nlohmann_json"]),
    "lemon": _library("liblemon-dev", pkgs = ["lemon"]),
    "openssl": _library("libssl-dev", pkgs = ["openssl"]),
    "pcre2": _library("libpcre2-dev", pkgs = ["libpcre2-8"]),
    "prometheus": _library("prometheus-cpp-dev", pkgs = ["prometheus-cpp-core"]),
    "protobuf": _library("libprotobuf-dev", pkgs = ["protobuf"]),
    "sentencepiece": _library(
        "libsentencepiece-dev",
        pkgs = ["sentencepiece"],
        wrapper = "third_party/sentencepiece",
    ),
    "spdlog": _library(
        "libspdlog-dev, libfmt-dev",
        header = "spdlog/spdlog.h",
        linkopts = ["-pthread"],
    ),
    "yaml": _library("libyaml-cpp-dev", pkgs = ["yaml-cpp"]),
}

# Programs that a build runs: name -> package.
_TOOLS = {
    "grpc_cpp_plugin": "protobuf-compiler-grpc",
    "protoc": "protobuf-compiler",
}

# Distributions choose the implementation at run time, and the archives want a Fortran runtime.
_SHARED_ONLY = ["-lblas", "-llapack"]

# The platform's own; never taken from an archive.
_PLATFORM = ["-ldl", "-lrt", "-lm", "-pthread", "-lpthread", "-latomic", "-lc", "-lresolv"]

_MISSING_BZL = '''"""A stand-in for what is not installed; it fails when, and only when, it is used."""

def _missing_impl(ctx):
    fail(ctx.attr.message)

missing = rule(
    implementation = _missing_impl,
    attrs = {"message": attr.string()},
    provides = [CcInfo],
)

missing_tool = rule(implementation = _missing_impl, attrs = {"message": attr.string()})
'''

def _keep_last(items):
    """Drops all but the last of equal items: what a linker needs of a repeated library."""
    seen = {}
    kept = []
    for item in reversed(items):
        if item not in seen:
            seen[item] = True
            kept.append(item)
    return [item for item in reversed(kept)]

def _pkg_config(ctx, arguments):
    """Words that pkg-config prints, or None where a module is not installed."""
    result = ctx.execute(["pkg-config"] + arguments)
    if result.return_code != 0:
        return None
    return [word for word in result.stdout.strip().split(" ") if word]

def _header_exists(ctx, header):
    folders = ctx.os.environ.get("CPATH", "").split(":") + ["/usr/local/include", "/usr/include"]
    return any([ctx.path(folder + "/" + header).exists for folder in folders if folder])

def _archives(ctx, flags):
    """Which of the -lNAME in flags has a libNAME.a in the linker's path, as a dict of flags."""
    names = [f for f in flags if f.startswith("-l") and f not in _PLATFORM + _SHARED_ONLY]
    if not names:
        return {}
    script = """
for flag in "$@"; do
  case $(gcc -print-file-name=lib${flag#-l}.a) in /*) echo "$flag" ;; esac
done"""
    found = ctx.execute(["sh", "-c", script, "sh"] + names).stdout.split("\n")
    return {f: True for f in found if f}

def _static_linkopts(ctx, flags):
    own = _keep_last([f for f in flags if f not in _PLATFORM])
    archives = _archives(ctx, own)
    static = [f for f in own if f in archives]
    shared = [f for f in own if f not in archives]
    platform = _keep_last([f for f in flags if f in _PLATFORM] + ["-pthread", "-ldl"])
    group = ["-Wl,--start-group", "-Wl,-Bstatic"] + static + ["-Wl,-Bdynamic", "-Wl,--end-group"]
    return (group if static else []) + shared + platform

def _cc_library(name, defines, shared, static, deps):
    return """cc_library(
    name = "{name}",
    defines = {defines},
    deps = {deps},
    linkopts = select({{
        ":static_link": {static},
        "//conditions:default": {shared},
    }}),
)""".format(name = name, defines = defines, shared = shared, static = static, deps = deps)

def _missing_message(what, deb):
    return ("%s is not installed. On Debian 12 or 13: " % what +
            "apt-get satisfy -y --no-install-recommends '%s'" % deb)

def _wrapped_target(ctx, name, file, wrapper):
    """A library that a package of ours prepares: the installed file, and the package's target."""
    path = ctx.execute(["gcc", "-print-file-name=" + file]).stdout.strip()
    ctx.symlink(path, file)
    return 'exports_files(["%s"])\nalias(name = "%s", actual = "@//%s")' % (file, name, wrapper)

def _version_deps(ctx, library):
    if not library.versions:
        return []
    major = _pkg_config(ctx, ["--modversion", library.pkgs[0]])[0].split(".")[0]
    return ["@//" + library.versions[major]] if major in library.versions else []

def _library_target(ctx, name, library):
    if library.header and not _header_exists(ctx, library.header):
        return _missing_target(name, "The header <%s>" % library.header, library.deb)
    shared, static, defines = [], [], []
    if library.pkgs:
        shared = _pkg_config(ctx, ["--libs"] + library.pkgs)
        static = _pkg_config(ctx, ["--libs", "--static"] + library.pkgs)
        cflags = _pkg_config(ctx, ["--cflags-only-other"] + library.pkgs)
        if shared == None or static == None or cflags == None:
            return _missing_target(name, "The library " + name, library.deb)
        shared = [f for f in shared if not f.startswith("-Wl,")]
        static = [f for f in static if not f.startswith("-Wl,")]
        if library.wrapper:
            return _wrapped_target(ctx, name, "lib%s.so" % name, library.wrapper)
        defines = [f[2:] for f in cflags if f.startswith("-D") and f != "-DNOMINMAX"]
    own = [f for f in library.linkopts if not f.startswith("-Wl,")]
    return _cc_library(
        name,
        defines,
        shared = library.linkopts + _keep_last(shared),
        static = _static_linkopts(ctx, own + static),
        deps = _version_deps(ctx, library),
    )

def _missing_target(name, what, deb, kind = "missing"):
    return '%s(name = "%s", message = "%s")' % (kind, name, _missing_message(what, deb))

def _tool_target(ctx, name, deb):
    path = ctx.which(name)
    if not path:
        return _missing_target(name, "The program " + name, deb, kind = "missing_tool")
    ctx.symlink(path, name)
    return 'exports_files(["%s"])' % name

def _versions(ctx):
    """What compiler and headers are installed: Bazel does not look into them."""
    return "".join([
        ctx.execute(command).stdout
        for command in [["gcc", "--version"], ["dpkg-query", "-W", "g++*", "*-dev"]]
    ])

def _system_impl(ctx):
    if not ctx.which("pkg-config"):
        fail(_missing_message("The program pkg-config", "pkg-config"))
    ctx.file("missing.bzl", _MISSING_BZL)
    ctx.file("versions.txt", _versions(ctx))
    targets = [_library_target(ctx, name, library) for name, library in _LIBRARIES.items()]
    tools = [_tool_target(ctx, name, deb) for name, deb in _TOOLS.items()]
    ctx.file("BUILD.bazel", "\n".join([
        'load(":missing.bzl", "missing", "missing_tool")',
        'package(default_visibility = ["//visibility:public"])',
        'exports_files(["versions.txt"])',
        'config_setting(name = "static_link", define_values = {"link": "static"})',
    ] + targets + tools) + "\n")

system_libraries = repository_rule(
    implementation = _system_impl,
    environ = ["PATH", "PKG_CONFIG_PATH", "CPATH"],
    local = True,
    configure = True,
)
