// How large a KV pool gets that nobody sized: by what memory the weights leave.
#include <grpcpp/grpcpp.h>

#include <catch2/catch.hpp>

#include "tests/worker/worker_harness.h"

namespace tessera::worker {
namespace {

TEST_CASE("a KV pool that nobody sized: half of what is left, at most what all sequences need") {
  Worker worker;
  v1::ConfigureRequest request = Worker::Request();
  request.set_kv_cache_bytes(0);
  v1::WorkerReady ready;
  REQUIRE(worker.Configure(request, &ready).ok());
  CHECK(ready.kv_blocks() == 8 * kPositions / 4);      // sequences, blocks of each
  worker.memory_left_bytes = 100 + 2 * (7 * 32 + 31);  // of which 100 are for activations
  request.mutable_fence()->set_plan_epoch(2);
  request.set_model_folder("/models/toy2");  // the same share would stay as it is
  REQUIRE(worker.Configure(request, &ready).ok());
  CHECK(ready.kv_blocks() == 7);
  worker.memory_left_bytes = 100;
  request.mutable_fence()->set_plan_epoch(3);
  request.set_model_folder("/models/toy3");
  const grpc::Status status = worker.Configure(request, &ready);
  CHECK(status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK_THAT(status.error_message(), Catch::Contains("has 0 bytes, but one block") &&
                                         Catch::Contains("the machine has 100 free"));
  request.mutable_fence()->set_plan_epoch(4);
  request.set_kv_cache_bytes(64);  // who says how much, gets it
  CHECK(worker.Configure(request, &ready).ok());
}

TEST_CASE("weights that wait have their memory promised, and are packed once all is set up") {
  Worker worker;
  v1::ConfigureRequest request = Worker::Request();
  request.set_kv_cache_bytes(0);
  worker.memory_left_bytes = 100 + 2 * (7 * 32 + 31);
  worker.waiting_bytes = 2 * 3 * 32;  // what twice three blocks would take
  v1::WorkerReady ready;
  REQUIRE(worker.Configure(request, &ready).ok());
  CHECK(ready.kv_blocks() == 4);
  CHECK(worker.toy->waiting_weight_bytes() == 0);
}

}  // namespace
}  // namespace tessera::worker
