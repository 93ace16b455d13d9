// The gRPC door of an in-process server, over a scripted service.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "coordinator/grpc_door/inference_service.h"
#include "proto/inference.grpc.pb.h"
#include "tests/coordinator/door.h"

namespace tessera::coordinator {

class GrpcDoor {
 public:
  explicit GrpcDoor(InferenceServiceOptions options = {},
                    std::shared_ptr<const ServedModel> model = DoorModel(),
                    std::vector<ServedEntry> others = {}) {
    service.SetScript(Say({{"one", 40}, {" two", 41}}));
    options.now_unix_seconds = [] { return int64_t{1700000001}; };
    others.insert(others.begin(), {.model = std::move(model), .service = &service});
    inference_ = MakeInferenceService(std::move(options), ServedModels(std::move(others)));
    grpc::ServerBuilder builder;
    builder.RegisterService(inference_.get());
    builder.SetMaxReceiveMessageSize(32 << 20);
    server_ = builder.BuildAndStart();
    stub = v1::Inference::NewStub(server_->InProcessChannel(grpc::ChannelArguments()));
  }
  ~GrpcDoor() { server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(5)); }

  FakeGenerationService service;
  std::unique_ptr<v1::Inference::Stub> stub;

 private:
  std::unique_ptr<grpc::Service> inference_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace tessera::coordinator
