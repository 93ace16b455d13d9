"""Stand-ins for the repositories that Bazel's built-in rules would download.

Debian's bazel-bootstrap 4.2.3 asks for them on any C++ build or test, and a build machine may have
no network. Debian's build reports an empty version; an upstream Bazel names its own, and one of
version 5 or later brings these repositories itself.
"""

_SHIMS = [
    "remote_coverage_tools",
    "rules_cc",
    "rules_java",
    "rules_proto",
]

def offline_shims():
    version = getattr(native, "bazel_version", "")
    if version and int(version.split(".")[0]) >= 5:
        return
    for name in _SHIMS:
        native.local_repository(name = name, path = "third_party/shims/" + name)
