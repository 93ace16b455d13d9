// Workers send what the planner charges for it.
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "kernels/links/frame.h"
#include "proto/layers/layers.h"
#include "proto/model/model_folder.h"
#include "scheduler/cost/model_shape.h"
#include "tests/worker/engine/engine_harness.h"
#include "tests/worker/formation/replica_harness.h"
#include "tests/worker/model/tiny_model.h"

namespace tessera::worker {

TEST_CASE("a row for the next stage has the bytes that the cost model counts") {
  const std::string folder = GoldenFolder("llama_bf16").string();
  const auto model = ReadModelFolder(folder);
  REQUIRE(model.ok());
  for (const v1::DataType type : {v1::DATA_TYPE_BFLOAT16, v1::DATA_TYPE_FLOAT32}) {
    const auto made = scheduler::MakeModelShape(*model, type);
    REQUIRE(made.ok());
    const auto shape = scheduler::WithWireType(*made, /*runtime_reserve_bytes=*/0);
    ReplicaOptions options;
    options.stages = {{1, 1}, {LayerCount(*model) - 1, 1}};
    options.weight_dtype = type;
    PlannedReplica replica(folder, options);
    const int64_t before = replica.bulk_bytes_sent(0);
    v1::Submit submit = MakeSubmit(1, Prompt(30, 3, 90), 11);
    submit.set_ignore_eos(true);
    replica.Submit(std::move(submit));
    REQUIRE(replica.WaitAll().at({1, 0}).tokens.size() == 11);
    const int64_t rows = 30 + 10;  // the last token needs no step
    const auto charged = static_cast<int64_t>(static_cast<double>(rows * model->hidden()) *
                                              shape.wire_bytes_per_element);
    const int64_t steps = 1 + 10;
    const int64_t expected = charged + steps * kernels::kFrameHeaderBytes;
    // A link counts a frame after it wrote it: the last token may be here before the count is.
    for (int tries = 0; tries < 1000 && replica.bulk_bytes_sent(0) - before < expected; ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    CHECK(replica.bulk_bytes_sent(0) - before == expected);
  }
}

}  // namespace tessera::worker
