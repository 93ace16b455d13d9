// A worker's service and its server on a loopback port, with the toy model behind them.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/protocol.h"
#include "tests/fakes/uniform_model.h"
#include "tests/worker/engine/engine_harness.h"
#include "worker/worker_server.h"
#include "worker/worker_service.h"

namespace tessera::worker {

inline constexpr uint64_t kIncarnation = 77;
inline constexpr int64_t kPositions = 400;  // of a sequence, at most

struct Worker {
  explicit Worker(const std::string& token = "", double max_stall_seconds = 30) {
    WorkerServiceOptions options;
    options.incarnation = kIncarnation;
    options.cluster_token = token;
    options.setup.device = &TestDevice();
    options.setup.kernel_path = "reference";
    options.setup.load_model = [this](
                                   const ModelOptions& model_options, kernels::Device&,
                                   const auto& progress) -> absl::StatusOr<std::unique_ptr<Model>> {
      ++loads;
      progress(500, 1000);
      if (!load_error.ok()) return load_error;
      if (load_throws) throw std::bad_alloc();
      auto model =
          std::make_unique<ToyModel>(model_options.model.vocabulary(), model_options.limits);
      model->on_forward = [this](const StepInputs&) {
        std::this_thread::sleep_for(std::chrono::milliseconds(step_milliseconds));
        return absl::OkStatus();
      };
      model->waiting_bytes = waiting_bytes;
      toy = model.get();
      return std::unique_ptr<Model>(std::move(model));
    };
    options.setup.fingerprint = [](const std::filesystem::path&) {
      return absl::StatusOr<std::string>("abcd");
    };
    options.setup.clock = [this] { return clock_seconds.load(); };
    options.setup.memory_left = [this] { return memory_left_bytes.load(); };
    options.setup.max_stall_seconds = max_stall_seconds;
    options.probe = {.buffer_bytes = 1 << 20, .matrix_size = 64, .rows = 16, .runs = 1};
    options.on_ready = [this](bool ready) { server->SetReady(ready); };
    service = std::make_unique<WorkerService>(options);
    auto started = WorkerServer::Start("127.0.0.1:0", !token.empty(), service.get());
    REQUIRE(started.ok());
    server = *std::move(started);
    channel = grpc::CreateChannel(server->address(), grpc::InsecureChannelCredentials());
    stub = v1::Worker::NewStub(channel);
  }
  ~Worker() {
    service->Shutdown(0);
    server->Shutdown(0);
  }

  static v1::Fence Fence(uint64_t epoch = 1) {
    v1::Fence fence;
    fence.set_plan_epoch(epoch);
    fence.set_worker_incarnation(kIncarnation);
    return fence;
  }

  static v1::ConfigureRequest Request(uint64_t epoch = 1) {
    v1::ConfigureRequest request;
    *request.mutable_fence() = Fence(epoch);
    request.set_model_folder("/models/toy");
    request.set_model_fingerprint("abcd");
    request.mutable_model()->set_name("toy");
    tests::SetLayers({.layers = 2}, request.mutable_model());
    request.mutable_model()->set_vocabulary(50);
    request.mutable_model()->set_max_positions(kPositions);
    request.mutable_share()->mutable_layers()->set_end(2);
    request.mutable_share()->set_holds_embedding(true);
    request.mutable_share()->set_holds_head(true);
    request.set_replica("r0");
    request.set_block_tokens(4);
    request.set_max_sequences(8);
    request.set_max_batched_tokens(64);
    request.set_kv_cache_bytes(400 * 32);
    request.set_prefix_cache(true);
    return request;
  }

  grpc::Status Configure(const v1::ConfigureRequest& request, v1::WorkerReady* ready = nullptr,
                         const std::string& token = "") {
    grpc::ClientContext context;
    if (!token.empty()) context.AddMetadata(std::string(kClusterTokenKey), token);
    auto reader = stub->Configure(&context, request);
    v1::ConfigureProgress progress;
    while (reader->Read(&progress)) {
      if (ready != nullptr) *ready = progress.ready();
    }
    return reader->Finish();
  }

  std::atomic<int> loads = 0;
  std::atomic<int> step_milliseconds = 0;
  std::atomic<double> clock_seconds = 0;
  std::atomic<int64_t> memory_left_bytes = int64_t{1} << 60;
  absl::Status load_error;
  bool load_throws = false;
  int64_t waiting_bytes = 0;      // of weights, of a model that loads
  const ToyModel* toy = nullptr;  // the last that was loaded
  std::unique_ptr<WorkerService> service;
  std::unique_ptr<WorkerServer> server;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::Worker::Stub> stub;
};

}  // namespace tessera::worker
