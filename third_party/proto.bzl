"""cc_grpc_library: .proto files -> C++ messages and gRPC stubs, by the system's protoc."""

load("//third_party:cc.bzl", "cc_library", "cold_cc_library")

def cc_grpc_library(name, srcs, deps = [], grpc = True, hot = False, visibility = None):
    """One cc_library for `srcs`, included as "<package>/<file>.pb.h" and ".grpc.pb.h".

    Args:
      name: the library; `<name>_protos` is the set of .proto files it needs, itself included.
      srcs: .proto files of this package; they import each other by path from the root.
      deps: other cc_grpc_library targets whose files are imported.
      grpc: whether stubs are generated too (False for plain messages).
      hot: whether requests pass through these messages.
      visibility: of the library and of its .proto files.
    """
    package = native.package_name()
    kinds = [".pb"] + ([".grpc.pb"] if grpc else [])
    stems = [s[:-len(".proto")] for s in srcs]
    headers = [stem + kind + ".h" for stem in stems for kind in kinds]
    sources = [stem + kind + ".cc" for stem in stems for kind in kinds]

    protos = srcs + [d + "_protos" for d in deps]
    native.filegroup(name = name + "_protos", srcs = protos, visibility = visibility)

    command = ["$(location @system//:protoc)", "--proto_path=.", "--cpp_out=$(GENDIR)"]
    tools = ["@system//:protoc"]
    if grpc:
        command.append("--plugin=protoc-gen-grpc=$(location @system//:grpc_cpp_plugin)")
        command.append("--grpc_out=$(GENDIR)")
        tools.append("@system//:grpc_cpp_plugin")
    native.genrule(
        name = name + "_generate",
        srcs = protos,
        outs = headers + sources,
        cmd = " ".join(command + [package + "/" + s for s in srcs]),
        tools = tools,
        visibility = ["//visibility:private"],
    )
    library = cc_library if hot else cold_cc_library
    library(
        name = name,
        srcs = sources,
        hdrs = headers,
        copts = ["-w"],
        deps = deps + ["@system//:protobuf"] + (["@system//:grpc"] if grpc else []),
        visibility = visibility,
    )
