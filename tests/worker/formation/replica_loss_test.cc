// What happens to a replica of several workers when one of them goes away.
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "tests/worker/engine/engine_harness.h"
#include "tests/worker/formation/replica_harness.h"
#include "tests/worker/model/tiny_model.h"

namespace tessera::worker {
namespace {

ReplicaOptions ThreeStages() {
  ReplicaOptions options;
  options.stages = {{1, 2}, {1, 1}, {1, 1}};  // members 0 and 1, 2, 3
  return options;
}

void SubmitLong(PlannedReplica* replica, uint64_t id) {
  v1::Submit submit = MakeSubmit(id, Prompt(9, 3, 90), 90);
  submit.set_ignore_eos(true);
  replica->Submit(std::move(submit));
}

TEST_CASE("a member that goes away closes the session, and no request fails") {
  for (const int member : {1, 2, 3}) {
    INFO("member " << member);
    PlannedReplica replica(GoldenFolder("llama_bf16").string(), ThreeStages());
    SubmitLong(&replica, 1);
    while (replica.load().generation_tokens() < 5) std::this_thread::yield();
    replica.Kill(member);
    const absl::Status reason = replica.WaitClosed();
    CHECK(absl::IsUnavailable(reason));
    CHECK_THAT(std::string(reason.message()), Catch::Contains("r0 stage"));
    const auto choices = replica.WaitAll();
    CHECK(choices.at({1, 0}).finish == v1::FINISH_REASON_UNSPECIFIED);
  }
}

TEST_CASE("an idle replica notices that a member is gone") {
  PlannedReplica replica(GoldenFolder("llama_bf16").string(), ThreeStages());
  replica.Kill(2);
  CHECK(absl::IsUnavailable(replica.WaitClosed()));
}

}  // namespace
}  // namespace tessera::worker
