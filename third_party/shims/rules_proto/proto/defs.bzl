"""Stand-in for rules_proto. Our own protos go through //third_party:proto.bzl."""

ProtoInfo = ProtoInfo
proto_library = native.proto_library
