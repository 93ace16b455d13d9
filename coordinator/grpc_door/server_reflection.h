// Server reflection of gRPC, version 1 (proto/reflection.proto), which the gRPC that is used here
// has only as v1alpha. It describes the services that it is given, from the messages that are
// linked into the program.
//
// Thread rule: thread-safe; one reactor per stream.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace grpc {
class Service;
}

namespace tessera::coordinator {

// `services`: full names; its own name is added.
std::unique_ptr<grpc::Service> MakeServerReflection(std::vector<std::string> services);

}  // namespace tessera::coordinator
