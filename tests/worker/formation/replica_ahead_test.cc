// Steps ahead of ranks that meet on their GPUs, and of stages that hand on by theirs, which the
// emulator plays: the tokens are those of steps one at a time, and steps are enqueued before the
// tokens of the one before them are known.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cuda/emulation/runtime.h"
#include "proto/layers/layers.h"
#include "proto/model/model_folder.h"
#include "tests/logged_lines.h"
#include "tests/worker/engine/submits.h"
#include "tests/worker/formation/replica_comparison.h"
#include "tests/worker/formation/replica_harness.h"
#include "tests/worker/model/tiny_model.h"

namespace tessera::worker {
namespace {

namespace emulated = kernels::cuda::emulated;

constexpr char kAhead[] = "steps: the next one is enqueued while one runs";
constexpr uint64_t kStopped = 6, kGreedy = 7;
// FormationTimes::silence_seconds, and some for a machine that is busy.
constexpr double kHeartbeatBound = 5 + 5;

std::string FolderOf(const std::string& model) { return GoldenFolder(model).string(); }

// Stages of so many ranks, all on GPUs; the last one has the layers that are left of one for each.
ReplicaOptions Stages(const std::string& model, const std::vector<int>& widths) {
  const auto shape = ReadModelFolder(FolderOf(model));
  REQUIRE(shape.ok());
  int64_t left = LayerCount(*shape);
  ReplicaOptions options;
  int members = 0;
  for (const int width : widths) {
    const bool last = options.stages.size() + 1 == widths.size();
    options.stages.push_back({last ? left : 1, width});
    --left;
    for (int rank = 0; rank < width; ++rank) options.gpus.insert(members++);
  }
  options.max_batched_tokens = 16;
  options.close_after_seconds = 300;
  return options;
}

ReplicaOptions Ranks(const std::string& model, int ranks) { return Stages(model, {ranks}); }

v1::Submit Greedy(uint64_t id, const std::vector<int32_t>& prompt, int32_t tokens) {
  v1::Submit submit = MakeSubmit(id, prompt, tokens);
  submit.set_ignore_eos(true);
  return submit;
}

v1::Submit Sampled(uint64_t id, int64_t prompt, int32_t tokens) {
  v1::Submit submit = Greedy(id, Prompt(prompt, id, 90), tokens);
  submit.mutable_sampling()->set_temperature(1.2F);
  submit.mutable_sampling()->set_top_k(20);
  submit.mutable_sampling()->set_top_p(0.9F);
  submit.mutable_sampling()->set_seed(id);
  return submit;
}

// Answers that begin and end at other steps, beside a prompt in pieces; some ask for what no step
// ahead gives.
std::vector<v1::Submit> Requests(const GoldenRun& run) {
  std::vector<v1::Submit> requests;
  // Together they become too long for a full pool.
  for (uint64_t id = 8; id < 11; ++id) requests.push_back(Greedy(id, Prompt(7, id, 90), 24));
  requests.push_back(Greedy(1, Prompt(5, 1, 90), 9));
  v1::Submit two = Sampled(2, 18, 7);
  two.set_choice_count(2);
  requests.push_back(two);
  requests.push_back(Greedy(3, Prompt(40, 3, 90), 8));
  v1::Submit logprobs = Greedy(4, Prompt(6, 4, 90), 3);
  logprobs.set_top_logprobs(2);
  requests.push_back(logprobs);
  v1::Submit penalised = Sampled(5, 8, 4);
  penalised.mutable_sampling()->set_presence_penalty(1.0F);
  requests.push_back(penalised);
  v1::Submit stopped = Greedy(kStopped, run.prompt, 12);
  stopped.add_stop_token_ids(run.tokens[3]);
  requests.push_back(stopped);
  requests.push_back(Greedy(kGreedy, run.prompt, 6));
  return requests;
}

struct Outcome {
  Answers answers;
  uint64_t preemptions = 0;
  int64_t ahead = 0;  // replicas whose log says that they run ahead
};

Outcome Run(const std::string& model, const ReplicaOptions& options) {
  const tests::LoggedLines lines("worker");
  Outcome outcome;
  {
    PlannedReplica replica(FolderOf(model), options);
    for (uint64_t id = 100; id < 110; ++id) {  // others are expected to be as short, and preempted
      replica.Submit(Greedy(id, Prompt(3, id, 90), 1));
    }
    replica.WaitAll();
    for (v1::Submit& submit : Requests(ReadGolden(model)[0])) replica.Submit(std::move(submit));
    outcome.answers = replica.WaitAll();
    outcome.preemptions = replica.load().preemptions();
  }
  outcome.ahead = lines.Count(kAhead);
  return outcome;
}

TEST_CASE("ranks that meet on their GPUs run ahead: the tokens of steps one at a time") {
#ifdef __SANITIZE_THREAD__
  WARN("left out: TSan does not follow the emulator's fibers");
#else
  // Experts, whose routes are rank 0's, and states that steps change.
  for (const std::string model : {"llama", "mixtral", "qwen3_5"}) {
    INFO(model);
    ReplicaOptions options = Ranks(model, 2);
    const bool is_full = model != "qwen3_5";  // its states would leave room for one sequence
    if (is_full) options.kv_blocks = 9;
    emulated::Inject({.vary_schedules = true});
    const Outcome ahead = Run(model, options);
    emulated::Inject({});
    options.maps_sums = false;
    const Outcome one_by_one = Run(model, options);
    CHECK(ahead.ahead == 1);
    CHECK(one_by_one.ahead == 0);
    CHECK((ahead.preemptions > 0) == is_full);
    CHECK((one_by_one.preemptions > 0) == is_full);
    CheckSameBits(ahead.answers, one_by_one.answers);
    const GoldenRun run = ReadGolden(model)[0];
    CHECK(ahead.answers.at({kGreedy, 0}).tokens ==
          std::vector<int32_t>(run.tokens.begin(), run.tokens.begin() + 6));
    const ChoiceEvents& stopped = ahead.answers.at({kStopped, 0});
    CHECK(stopped.finish == v1::FINISH_REASON_STOP);
    CHECK(stopped.tokens.size() <= 4);
  }
#endif
}

TEST_CASE("stages that hand on by their GPUs run ahead: the tokens of steps one at a time") {
#ifdef __SANITIZE_THREAD__
  WARN("left out: TSan does not follow the emulator's fibers");
#else
  struct Case {
    std::string model;
    std::vector<int> widths;
    int64_t sum_bytes = 0;
    int32_t micro_batches = 0;
  };
  // By the hosts where rows are more than eight, which prompts are, and in four pieces of two.
  constexpr int64_t kTwoRows = 2 * 32 * sizeof(float);
  // Experts, whose routes are rank 0's of each stage, and states that steps change.
  for (const auto& [model, widths, sum_bytes, micro_batches] :
       {Case{"llama", {1, 1}}, Case{"llama", {1, 1}, 0, 1}, Case{"llama", {1, 1}, kTwoRows, 3},
        Case{"exaone4", {1, 1, 1}}, Case{"llama", {2, 1}}, Case{"mixtral", {1, 2}, kTwoRows},
        Case{"qwen3_5", {1, 1}}}) {
    INFO(model << ", " << widths.size() << " stages, the first of " << widths[0] << ", "
               << sum_bytes << " bytes at once, " << micro_batches << " lanes");
    ReplicaOptions options = Stages(model, widths);
    options.sum_bytes = sum_bytes;
    options.micro_batches = micro_batches;
    emulated::Inject({.vary_schedules = true});
    const Outcome ahead = Run(model, options);
    emulated::Inject({});
    options.maps_sums = false;
    const Outcome one_by_one = Run(model, options);
    CHECK(ahead.ahead == 1);
    CHECK(one_by_one.ahead == 0);
    CheckSameBits(ahead.answers, one_by_one.answers);
    const GoldenRun run = ReadGolden(model)[0];
    CHECK(ahead.answers.at({kGreedy, 0}).tokens ==
          std::vector<int32_t>(run.tokens.begin(), run.tokens.begin() + 6));
  }
#endif
}

// How often devices met for an answer to the run's prompt: as many times a step, and once more
// where they are given tokens that no host had when it enqueued the step.
int64_t Meetings(PlannedReplica& replica, const GoldenRun& run, uint64_t id, int32_t top_logprobs,
                 int32_t tokens) {
  const int64_t before = emulated::LaunchesFrom("mapped_sum.cu");
  v1::Submit submit = Greedy(id, run.prompt, tokens);
  submit.set_top_logprobs(top_logprobs);
  replica.Submit(std::move(submit));
  const ChoiceEvents choice = replica.WaitAll().at({id, 0});
  CHECK(choice.tokens == std::vector<int32_t>(run.tokens.begin(), run.tokens.begin() + tokens));
  // Ranks that do not sample may still be at the last step.
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  return emulated::LaunchesFrom("mapped_sum.cu") - before;
}

TEST_CASE("a step of stages is enqueued before its tokens are known, and no host hands rows on") {
#ifdef __SANITIZE_THREAD__
  WARN("left out: TSan does not follow the emulator's fibers");
#else
  constexpr int kTokens = 12, kFewer = 5;
  for (const int stages : {2, 3}) {
    INFO(stages << " stages");
    const std::string model = "exaone4";
    ReplicaOptions options = Stages(model, std::vector<int>(static_cast<size_t>(stages), 1));
    options.prefix_cache = false;
    PlannedReplica replica(FolderOf(model), options);
    const GoldenRun run = ReadGolden(model)[0];
    const auto meetings = [&](uint64_t id, int32_t top_logprobs, int32_t tokens) {
      return Meetings(replica, run, id, top_logprobs, tokens);
    };
    const int64_t sent = replica.bulk_bytes_sent(0);
    const int64_t ahead = meetings(1, -1, kTokens), one_by_one = meetings(2, 0, kTokens);
    CHECK(ahead - one_by_one == 2 * (kTokens - 1));  // both ends of the tokens' way
    CHECK(one_by_one - meetings(3, 0, kFewer) == (kTokens - kFewer) * 2 * (stages - 1));
    CHECK(replica.bulk_bytes_sent(0) == sent);
  }
#endif
}

TEST_CASE("a step of ranks is enqueued before the tokens of the one before it are known") {
#ifdef __SANITIZE_THREAD__
  WARN("left out: TSan does not follow the emulator's fibers");
#else
  constexpr int kTokens = 12, kFewer = 5;
  for (const int ranks : {2, 4}) {
    INFO(ranks << " ranks");
    const std::string model = "llama";
    ReplicaOptions options = Ranks(model, ranks);
    options.prefix_cache = false;
    PlannedReplica replica(FolderOf(model), options);
    const GoldenRun run = ReadGolden(model)[0];
    const auto meetings = [&](uint64_t id, int32_t top_logprobs, int32_t tokens) {
      return Meetings(replica, run, id, top_logprobs, tokens);
    };
    meetings(1, -1, kTokens);  // graphs are made
    meetings(2, 0, kTokens);
    const int64_t ahead = meetings(3, -1, kTokens), one_by_one = meetings(4, 0, kTokens);
    CHECK(ahead - one_by_one == ranks * (kTokens - 1));
    // Embedding and two blocks of a layer are sums; of two ranks the logits go by the devices, too,
    // so that no host takes part.
    const int64_t in_step = 1 + 2 * options.stages[0].layers + (ranks == 2 ? 1 : 0);
    CHECK(one_by_one - meetings(5, 0, kFewer) == ranks * (kTokens - kFewer) * in_step);
  }
#endif
}

// The replica is closed within the heartbeat's bound after `breaks`, and what was said is right.
template <typename Break>
void CheckEnds(const std::vector<int>& widths, const Break& breaks) {
  const std::string model = "exaone4";
  PlannedReplica replica(FolderOf(model), Stages(model, widths));
  const GoldenRun run = ReadGolden(model)[0];
  replica.Submit(Greedy(0, run.prompt, 60));
  while (replica.load().generation_tokens() < 3) std::this_thread::yield();
  const auto began = std::chrono::steady_clock::now();
  breaks(replica);
  CHECK_FALSE(replica.WaitClosed().ok());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  CHECK(took.count() < kHeartbeatBound);
  const ChoiceEvents choice = replica.WaitAll().at({0, 0});
  CHECK(choice.finish == v1::FINISH_REASON_UNSPECIFIED);
  const size_t known = std::min(choice.tokens.size(), run.tokens.size());
  CHECK(known >= 3);
  CHECK(std::equal(choice.tokens.begin(), choice.tokens.begin() + static_cast<int64_t>(known),
                   run.tokens.begin()));
}

TEST_CASE("a rank that is lost inside steps ahead ends the replica, and no token is wrong") {
#ifdef __SANITIZE_THREAD__
  WARN("left out: TSan does not follow the emulator's fibers");
#else
  CheckEnds({2}, [](PlannedReplica& replica) { replica.Kill(1); });
  // Of either rank, at some launch of a step.
  for (const int64_t launch : {1, 2, 7, 12, 20, 33}) {
    INFO("launch " << launch);
    CheckEnds({2}, [&](PlannedReplica&) { emulated::Inject({.failing_launch = launch}); });
    emulated::Inject({});
  }
#endif
}

TEST_CASE("a stage that is lost inside steps ahead ends the replica, and no token is wrong") {
#ifdef __SANITIZE_THREAD__
  WARN("left out: TSan does not follow the emulator's fibers");
#else
  for (const int member : {1, 2})
    for (const std::vector<int>& widths : {std::vector{1, 1, 1}, {2, 1}})
      CheckEnds(widths, [&](PlannedReplica& replica) { replica.Kill(member); });
  for (const int64_t launch : {1, 2, 7, 12, 20, 33}) {
    INFO("launch " << launch);
    CheckEnds({1, 1}, [&](PlannedReplica&) { emulated::Inject({.failing_launch = launch}); });
    emulated::Inject({});
  }
#endif
}

TEST_CASE("a replica of GPUs whose steps come one at a time says why") {
  const std::string model = "llama";
  const auto said = [&](const ReplicaOptions& options) {
    const tests::LoggedLines lines("worker");
    PlannedReplica replica(FolderOf(model), options);
    CHECK(lines.Count(kAhead) == 0);
    CHECK(lines.Count("steps: one at a time, as ") == 1);
    const std::string through_hosts =
        "one at a time, as rows go from stage to stage through the hosts ";
    return lines.Count("one at a time, as the ranks' devices map no memory for their sums") +
           lines.Count(through_hosts + "(the leader's device maps none)") * 10 +
           lines.Count(through_hosts + "(r0 stage 1 rank 0 (worker/1)'s device maps none)") * 100 +
           lines.Count(through_hosts + "(the leader and r0 stage 1 rank 0 (worker/1) are on one " +
                       "GPU, GPU-0)") *
               1000;
  };
  ReplicaOptions options = Ranks(model, 2);
  options.maps_sums = false;
  CHECK(said(options) == 1);
  options = Stages(model, {1, 1});
  options.maps_sums = false;
  CHECK(said(options) == 10);
  options = Stages(model, {1, 1});
  options.gpus = {0};
  CHECK(said(options) == 100);
  options = Stages(model, {1, 1});
  options.same_gpu = true;
  CHECK(said(options) == 1000);
}

}  // namespace
}  // namespace tessera::worker
