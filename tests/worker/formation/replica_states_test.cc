// States of prompts that are kept and restored: only what was not computed before is computed, and
// in float32 the tokens are those of a replica that keeps nothing, on one worker and on several.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "proto/layers/kv_sizes.h"
#include "proto/layers/layers.h"
#include "proto/model/model_folder.h"
#include "tests/worker/engine/engine_harness.h"
#include "tests/worker/formation/hand_over.h"
#include "tests/worker/formation/replica_comparison.h"
#include "tests/worker/formation/replica_harness.h"
#include "tests/worker/model/tiny_model.h"
#include "worker/engine/state_keeper.h"

namespace tessera::worker {
namespace {

constexpr int64_t kBlock = PlannedReplica::kBlockTokens;
constexpr const char* kModel = "qwen3_5";

struct Layout {
  const char* name;
  std::vector<StageLayout> stages;
};
// A layer of each kind in a stage of its own: the second one keeps no states.
const std::vector<Layout>& Layouts() {
  static const auto& layouts =
      *new std::vector<Layout>{{"one worker", {}},
                               {"two stages", {{2, 1}, {1, 1}}},
                               {"a stage of attention alone", {{1, 1}, {1, 1}, {1, 1}}},
                               {"two ranks", {{3, 2}}}};
  return layouts;
}

std::vector<int32_t> Append(std::vector<int32_t> tokens, const std::vector<int32_t>& more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

// A replica and one that keeps no states, which get the same requests.
class Pair {
 public:
  explicit Pair(const ReplicaOptions& options)
      : keeps_(GoldenFolder(kModel).string(), options),
        forgets_(GoldenFolder(kModel).string(), Without(options)) {}

  // The choices of one request, whose tokens must be the same.
  std::vector<ChoiceEvents> Run(const std::vector<int32_t>& prompt, int32_t max_tokens,
                                int32_t choices = 1, int32_t message_end_tokens = 0,
                                int32_t message_begin_tokens = 0) {
    const uint64_t id = ++ids_;
    for (PlannedReplica* replica : {&keeps_, &forgets_}) {
      v1::Submit submit = MakeSubmit(id, prompt, max_tokens);
      submit.set_choice_count(choices);
      submit.mutable_sampling()->set_temperature(choices > 1 ? 1.0f : 0.0f);
      submit.mutable_sampling()->set_seed(id);
      submit.set_message_end_tokens(message_end_tokens);
      submit.set_message_begin_tokens(message_begin_tokens);
      submit.set_ignore_eos(true);
      submit.set_top_logprobs(0);
      replica->Submit(std::move(submit));
    }
    const auto kept = keeps_.WaitAll(), forgot = forgets_.WaitAll();
    std::vector<ChoiceEvents> answers;
    for (int32_t choice = 0; choice < choices; ++choice) {
      const ChoiceEvents& one = kept.at({id, choice});
      const ChoiceEvents& other = forgot.at({id, choice});
      INFO(one.error);
      REQUIRE(one.finish == v1::FINISH_REASON_LENGTH);
      CHECK(one.tokens == other.tokens);
      CHECK(one.logprobs == other.logprobs);
      CHECK(other.cached_tokens == 0);
      answers.push_back(one);
    }
    return answers;
  }

  uint64_t computed_tokens() const { return keeps_.load().prompt_tokens(); }
  const v1::WorkerReady& ready() const { return keeps_.ready(0); }

 private:
  static ReplicaOptions Without(ReplicaOptions options) {
    options.state_cache_bytes = 0;
    return options;
  }

  PlannedReplica keeps_, forgets_;
  uint64_t ids_ = 0;
};

ReplicaOptions OptionsOf(const Layout& layout) {
  ReplicaOptions options;
  options.stages = layout.stages;
  return options;
}

// Bytes of one state in all layers.
int64_t StateBytes() {
  const auto model = ReadModelFolder(GoldenFolder(kModel).string());
  REQUIRE(model.ok());
  return BlockBytesOf(*model, WholeShare(*model), 4, kBlock, /*windows_apart=*/false).seat;
}

// A conversation whose answers begin with thinking text, which is gone from the next turn's prompt.
void Converse(Pair& pair, int turns) {
  std::vector<int32_t> history;
  int64_t last_message_end = 0;
  for (int turn = 0; turn < turns; ++turn) {
    INFO("turn " << turn);
    history = Append(history, Prompt(6, 100 + turn, 96));
    const auto message_end = static_cast<int32_t>(history.size());
    const std::vector<int32_t> prompt = Append(history, {90, 91});  // "assistant", "think"
    const ChoiceEvents answer = pair.Run(prompt, 6, 1, message_end)[0];
    // What is missing is one message, an answer, and a part of a block.
    CHECK(answer.cached_tokens >= last_message_end / kBlock * kBlock);
    last_message_end = message_end;
    history = Append(history, {answer.tokens.begin() + 3, answer.tokens.end()});
  }
}

TEST_CASE("a turn of a conversation computes one message, whatever the thinking before was") {
  for (const Layout& layout : Layouts()) {
    INFO(layout.name);
    Pair pair(OptionsOf(layout));
    Converse(pair, 10);
  }
}

TEST_CASE("of prompts that begin alike the third computes only what it has alone") {
  for (const Layout& layout : Layouts()) {
    INFO(layout.name);
    Pair pair(OptionsOf(layout));
    const std::vector<int32_t> common = Prompt(3 * kBlock, 1, 96);
    CHECK(pair.Run(Append(common, Prompt(20, 2, 96)), 4)[0].cached_tokens == 0);
    CHECK(pair.Run(Append(common, Prompt(20, 3, 96)), 4)[0].cached_tokens == 0);
    CHECK(pair.Run(Append(common, Prompt(20, 4, 96)), 4)[0].cached_tokens == 3 * kBlock);
  }
}

TEST_CASE("a prompt that is another's up to its last message computes that message alone") {
  constexpr int32_t kCommon = StateKeeper::kSharedBlocks * kBlock;
  for (const Layout& layout : Layouts()) {
    INFO(layout.name);
    Pair pair(OptionsOf(layout));
    const std::vector<int32_t> common = Prompt(kCommon, 1, 96);
    for (const uint32_t seed : {2, 3, 4}) {
      const auto answers = pair.Run(Append(common, Prompt(20, seed, 96)), 4, 1, 0, kCommon);
      CHECK(answers[0].cached_tokens == (seed == 2 ? 0 : kCommon));
    }
  }
}

TEST_CASE("choices of one prompt compute it once, with the prefix cache and without") {
  for (const bool prefix_cache : {true, false}) {
    ReplicaOptions options;
    options.prefix_cache = prefix_cache;
    Pair pair(options);
    const uint64_t before = pair.computed_tokens();
    pair.Run(Prompt(44, 1, 96), 5, /*choices=*/4);
    // The last block is not full, and each computes it itself.
    CHECK(pair.computed_tokens() - before == 44 + 3 * (44 - 40));
  }
}

TEST_CASE("the next turn of an answer that is kept whole goes on within it") {
  Pair pair({});
  const std::vector<int32_t> prompt = Prompt(20, 1, 96);
  const ChoiceEvents answer = pair.Run(prompt, 60)[0];
  const std::vector<int32_t> next = Append(Append(prompt, answer.tokens), Prompt(10, 2, 96));
  CHECK(pair.Run(next, 4)[0].cached_tokens == 64);
}

TEST_CASE("with room for few states answers stay the same, and the newest turn is found") {
  for (const Layout& layout : Layouts()) {
    INFO(layout.name);
    ReplicaOptions options = OptionsOf(layout);
    options.state_cache_bytes = 3 * StateBytes();
    Pair pair(options);
    Converse(pair, 10);
  }
}

TEST_CASE("a chunk of a prompt ends anywhere beside where its states are kept") {
  ReplicaOptions options;
  options.max_batched_tokens = 11;
  Pair pair(options);
  Converse(pair, 6);
}

TEST_CASE("a worker says how much memory it gives to states of prompts") {
  ReplicaOptions options;
  options.state_cache_bytes = 5 * StateBytes() + 1;
  CHECK(Pair(options).ready().state_cache_bytes() == 5 * StateBytes());
  options.state_cache_bytes = StateBytes() - 1;
  PlannedReplica replica(GoldenFolder(kModel).string(), options);
  CHECK(replica.ready(0).state_cache_bytes() == 0);
}

std::vector<v1::Submit> RequestsToHandOver() {
  std::vector<v1::Submit> requests;
  for (const int64_t length : {1, 8, 33, 70}) {  // rooms for as many at once
    const auto id = static_cast<uint64_t>(requests.size());
    v1::Submit submit = MakeSubmit(id, Prompt(length, 9 + id, 96), 12);
    submit.set_ignore_eos(true);
    submit.set_top_logprobs(0);
    requests.push_back(std::move(submit));
  }
  return requests;
}

// States go from the layout that computed them to another one, key group by key group.
void CheckHandOver(const char* model, ReplicaOptions from, ReplicaOptions to, const char* way) {
  const std::string folder = GoldenFolder(model).string();
  from.moves_kv = to.moves_kv = true;
  from.max_batched_tokens = 9;  // several steps a prompt
  const std::vector<v1::Submit> requests = RequestsToHandOver();
  Split split{{folder, from}, {folder, to}, way};
  const Answers got = split.Run(requests);
  CHECK(CheckWithin(kTolerance, got, Run(folder, {}, requests)) > 40);
  CHECK(split.decode.load().prompt_tokens() == 0);
  CHECK(HoldsNothing(split.prefill));
  CHECK(HoldsNothing(split.decode));
  // What was computed elsewhere, and what was found of it, goes on as well.
  for (PlannedReplica* replica : {&split.prefill, &split.decode}) {
    v1::Submit again = requests.back();
    again.set_submission_id(100);
    again.clear_kv_target();
    replica->Submit(again);
    CHECK(replica->WaitAll().at({100, 0}).tokens ==
          got.at({requests.back().submission_id(), 0}).tokens);
  }
}

TEST_CASE("a prompt's states go on in a replica of another layout") {
  for (const char* model : {"qwen3_5", "qwen3_next"}) {
    for (const Layout& from : Layouts()) {
      for (const Layout& to : Layouts()) {
        INFO(model << ": " << from.name << " to " << to.name);
        CheckHandOver(model, OptionsOf(from), OptionsOf(to), "tcp");
      }
    }
  }
}

TEST_CASE("states go from a GPU to a CPU, and back") {
#ifdef __SANITIZE_THREAD__
  WARN("left out: TSan makes the emulator's fibers too slow");
#else
  ReplicaOptions gpu;
  gpu.gpus = {0};
  CheckHandOver(kModel, gpu, {}, "tcp, staged");
  CheckHandOver(kModel, {}, gpu, "tcp, staged");
#endif
}

}  // namespace
}  // namespace tessera::worker
