// Everything that a request can ask of one worker, asked of replicas in several layouts.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/cpu/isa.h"
#include "tests/temporary_folder.h"
#include "tests/worker/engine/engine_harness.h"
#include "tests/worker/formation/made_checkpoint.h"
#include "tests/worker/formation/replica_comparison.h"
#include "tests/worker/formation/replica_harness.h"
#include "worker/model/model.h"

namespace tessera::worker {
namespace {

// Of the span of a position's logits, in float32, from the order of sums alone.
constexpr double kSumTolerance = 1e-4;

// A stage of several ranks first, last, in the middle, and alone; and stages of one rank.
const std::vector<std::vector<StageLayout>>& Layouts() {
  static const std::vector<std::vector<StageLayout>> layouts = {
      {{2, 1}, {1, 1}, {2, 1}}, {{5, 4}}, {{2, 3}, {3, 1}}, {{1, 1}, {1, 2}, {3, 4}}};
  return layouts;
}

bool WidthOne(const std::vector<StageLayout>& stages) {
  return std::all_of(stages.begin(), stages.end(),
                     [](const StageLayout& stage) { return stage.width == 1; });
}

std::string Describe(const std::vector<StageLayout>& stages) {
  std::string text = "layers x width:";
  for (const StageLayout& stage : stages) {
    text += " " + std::to_string(stage.layers) + "x" + std::to_string(stage.width);
  }
  return text;
}

ReplicaOptions Staged(const std::vector<StageLayout>& stages) {
  ReplicaOptions options;
  options.stages = stages;
  return options;
}

// A checkpoint that one test case uses.
class Made {
 public:
  explicit Made(MadeModel kind) { WriteMadeCheckpoint(folder_.path(), kind); }
  std::string folder() const { return folder_.path().string(); }

 private:
  const tests::TemporaryFolder folder_;
};

v1::Submit Request(uint64_t id, int64_t prompt_tokens, int32_t max_tokens) {
  v1::Submit submit =
      MakeSubmit(id, Prompt(prompt_tokens, static_cast<uint32_t>(id), kMadeVocabulary), max_tokens);
  submit.set_ignore_eos(true);
  submit.set_top_logprobs(kMadeVocabulary);
  return submit;
}

void WaitFor(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!condition() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  REQUIRE(condition());
}

Answers Run(const Made& model, const ReplicaOptions& options,
            const std::vector<v1::Submit>& requests) {
  PlannedReplica replica(model.folder(), options);
  for (const v1::Submit& request : requests) replica.Submit(request);
  Answers answers = replica.WaitAll();
  WaitFor([&] { return replica.load().kv_blocks_used() == 0; });
  return answers;
}

// Requests 1 and 2: several choices, drawn with penalties and without.
void AddDrawn(std::vector<v1::Submit>* requests) {
  v1::Submit drawn = Request(1, 21, 12);
  drawn.set_choice_count(3);
  drawn.mutable_sampling()->set_temperature(0.9f);
  drawn.mutable_sampling()->set_top_p(0.95f);
  drawn.mutable_sampling()->set_top_k(40);
  drawn.mutable_sampling()->set_seed(11);
  requests->push_back(drawn);
  v1::Submit penalised = Request(2, 17, 16);
  penalised.set_choice_count(2);
  penalised.mutable_sampling()->set_temperature(1.2f);
  penalised.mutable_sampling()->set_min_p(0.01f);
  penalised.mutable_sampling()->set_seed(12);
  penalised.mutable_sampling()->set_repetition_penalty(1.3f);
  penalised.mutable_sampling()->set_presence_penalty(0.6f);
  penalised.mutable_sampling()->set_frequency_penalty(0.8f);
  requests->push_back(penalised);
}

// Requests 3 to 6: ids that are favoured, allowed, banned, and that end a choice.
void AddBiased(const std::vector<int32_t>& greedy, std::vector<v1::Submit>* requests) {
  v1::Submit biased = Request(3, 9, 10);
  (*biased.mutable_sampling()->mutable_logit_bias())[7] = 6;
  (*biased.mutable_sampling()->mutable_logit_bias())[96] = 5;
  (*biased.mutable_sampling()->mutable_logit_bias())[greedy[0]] = -100;
  requests->push_back(biased);
  v1::Submit allowed = Request(4, 13, 8);
  for (const int32_t id : {0, 24, 25, 48, 49, 73, 95, 96}) allowed.add_allowed_token_ids(id);
  requests->push_back(allowed);
  v1::Submit banned = Request(5, 30, 10);  // the prompt of which `greedy` is the continuation
  banned.add_bad_words()->add_ids(greedy[0]);
  v1::TokenSequence* pair = banned.add_bad_words();
  pair->add_ids(greedy[1]);
  pair->add_ids(greedy[2]);
  requests->push_back(banned);
  v1::Submit stopped = Request(6, 30, 30);
  stopped.mutable_prompt_token_ids()->CopyFrom(banned.prompt_token_ids());
  stopped.add_stop_token_ids(greedy[1]);
  for (int32_t id = 0; id < 40; ++id) stopped.add_stop_token_ids(id);
  stopped.set_min_tokens(4);
  requests->push_back(stopped);
}

// Requests 7 and 8: a prompt's own logprobs, with an answer and without.
void AddScored(std::vector<v1::Submit>* requests) {
  v1::Submit scored = Request(7, 33, 5);
  scored.set_top_logprobs(3);
  scored.set_prompt_logprobs(3);
  requests->push_back(scored);
  v1::Submit echoed = Request(8, 26, 0);
  echoed.set_prompt_logprobs(0);
  requests->push_back(echoed);
}

std::vector<v1::Submit> EveryRequest(const Made& model) {
  const Answers greedy = Run(model, {}, {Request(5, 30, 12)});
  const std::vector<int32_t>& tokens = greedy.at({5, 0}).tokens;
  REQUIRE(tokens.size() == 12);
  std::vector<v1::Submit> requests;
  AddDrawn(&requests);
  AddBiased(tokens, &requests);
  AddScored(&requests);
  return requests;
}

// That one worker did what was asked: else nothing is compared below.
void CheckAnswered(const Answers& alone) {
  CHECK(alone.at({1, 0}).tokens != alone.at({1, 1}).tokens);
  CHECK(alone.at({3, 0}).tokens != alone.at({4, 0}).tokens);
  CHECK(alone.at({2, 1}).tokens.size() == 16);
  CHECK(alone.at({6, 0}).finish == v1::FINISH_REASON_STOP);
  CHECK(alone.at({6, 0}).tokens.size() > 4);
  CHECK(alone.at({7, 0}).prompt_logprobs.size() == 33);
  CHECK(alone.at({8, 0}).prompt_logprobs.size() == 26);
  CHECK(alone.at({8, 0}).tokens.empty());
  for (const auto& [key, choice] : alone) {
    INFO("submission " << key.first);
    CHECK(choice.error.empty());
  }
}

TEST_CASE("what a request asks of one worker, it gets in every layout") {
  for (const MadeModel kind : MadeModels()) {
    const Made model(kind);
    const std::vector<v1::Submit> requests = EveryRequest(model);
    const Answers alone = Run(model, {}, requests);
    CheckAnswered(alone);
    for (const auto& stages : Layouts()) {
      INFO(Name(kind) << ", " << Describe(stages));
      const Answers answers = Run(model, Staged(stages), requests);
      CheckWithin(kSumTolerance, answers, alone);
      if (WidthOne(stages)) CheckSameBits(answers, alone);
    }
  }
}

TEST_CASE("a prompt that was computed before is found, and gives the same bits") {
  const Made model(MadeModel::kDense);
  for (const auto& stages : Layouts()) {
    INFO(Describe(stages));
    PlannedReplica replica(model.folder(), Staged(stages));
    v1::Submit request = Request(1, 45, 8);
    replica.Submit(request);
    Answers first = replica.WaitAll();
    request.set_submission_id(2);
    replica.Submit(request);
    const Answers both = replica.WaitAll();
    CHECK(both.at({1, 0}).cached_tokens == 0);
    CHECK(both.at({2, 0}).cached_tokens == 40);  // whole blocks
    CheckSameBits({{{1, 0}, both.at({2, 0})}}, first);
  }
}

TEST_CASE("sequences that are preempted for want of blocks go on with the same bits") {
  const Made model(MadeModel::kTiedWithBias);
  std::vector<v1::Submit> requests;
  for (uint64_t id = 1; id <= 4; ++id) requests.push_back(Request(id, 20 + id, 40));
  for (const auto& stages : Layouts()) {
    INFO(Describe(stages));
    const Answers roomy = Run(model, Staged(stages), requests);
    ReplicaOptions options = Staged(stages);
    options.kv_blocks = 14;  // each sequence comes to need 8
    PlannedReplica replica(model.folder(), options);
    for (const v1::Submit& request : requests) replica.Submit(request);
    const Answers tight = replica.WaitAll();
    CHECK(replica.load().preemptions() > 0);
    WaitFor([&] { return replica.load().kv_blocks_used() == 0; });
    CheckSameBits(tight, roomy);
  }
}

TEST_CASE("a request that is cancelled ends, gives its blocks back, and harms no other") {
  const Made model(MadeModel::kExperts);
  const v1::Submit other = Request(2, 12, 30);
  for (const auto& stages : Layouts()) {
    INFO(Describe(stages));
    const Answers undisturbed = Run(model, Staged(stages), {other});
    PlannedReplica replica(model.folder(), Staged(stages));
    replica.Submit(Request(1, 9, 110));
    replica.Submit(other);
    WaitFor([&] { return replica.load().generation_tokens() >= 6; });
    replica.Cancel(1);
    const Answers answers = replica.WaitAll();
    CHECK(answers.at({1, 0}).finish == v1::FINISH_REASON_CANCELLED);
    CHECK(answers.at({1, 0}).tokens.size() < 110);
    CheckSameBits({{{2, 0}, answers.at({2, 0})}}, undisturbed);
    WaitFor([&] { return replica.load().kv_blocks_used() == 0; });
  }
}

TEST_CASE("while its session takes no replies a replica runs no steps, and then goes on") {
  const Made model(MadeModel::kDense);
  const v1::Submit request = Request(1, 12, 40);
  for (const auto& stages : Layouts()) {
    INFO(Describe(stages));
    const Answers prompt_reader = Run(model, Staged(stages), {request});
    PlannedReplica replica(model.folder(), Staged(stages));
    replica.HoldReplies(true);
    replica.Submit(request);
    WaitFor([&] { return replica.load().waiting() + replica.load().running() == 1; });
    CHECK(replica.load().generation_tokens() == 0);
    for (const uint64_t tokens : {3, 11, 12, 30}) {
      replica.HoldReplies(false);
      WaitFor([&] { return replica.load().generation_tokens() >= tokens; });
      replica.HoldReplies(true);
    }
    replica.HoldReplies(false);
    CheckSameBits(replica.WaitAll(), prompt_reader);
  }
}

// The distribution behind every position of one prompt, of weights of a type: the same tokens
// whatever is computed.
ChoiceEvents ScorePrompt(const Made& model, const std::vector<StageLayout>& stages,
                         v1::DataType weights, kernels::Isa isa) {
  ReplicaOptions options = Staged(stages);
  options.weight_dtype = weights;
  options.isas = {isa};
  v1::Submit request = Request(1, 60, 0);
  request.set_prompt_logprobs(kMadeVocabulary);
  ChoiceEvents scored = Run(model, options, {request}).at({1, 0});
  REQUIRE(scored.prompt_logprobs.size() == 60);
  return scored;
}

// Of the span of a position's logits, between stages of one rank and stages of more.
double RankTolerance(MadeModel model, v1::DataType weights, kernels::Isa isa) {
  if (weights != v1::DATA_TYPE_INT8) {
    return isa == kernels::Isa::kReference ? kSumTolerance : kRoundedRowTolerance;
  }
  // Inputs that are cut between ranks have scales of their own. Where two experts are nearly as
  // good as each other, that may decide between them.
  if (model == MadeModel::kExperts) return 0.25;
  // States carry a difference on, from row to row.
  return model == MadeModel::kHybrid ? 0.05 : 0.02;
}

TEST_CASE("bfloat16 and int8 weights: the same bits with stages of one rank, near them with more") {
  const kernels::Isa best = kernels::SupportedIsas(kernels::DetectCpuFeatures()).back();
  for (const MadeModel kind : MadeModels()) {
    const Made model(kind);
    for (const auto& [weights, isa] : {std::pair{v1::DATA_TYPE_BFLOAT16, kernels::Isa::kReference},
                                       {v1::DATA_TYPE_BFLOAT16, best},
                                       {v1::DATA_TYPE_INT8, kernels::Isa::kReference},
                                       {v1::DATA_TYPE_INT8, best}}) {
      const ChoiceEvents alone = ScorePrompt(model, {}, weights, isa);
      for (const std::vector<StageLayout>& stages :
           {std::vector<StageLayout>{{3, 1}, {2, 1}}, {{5, 2}}, {{2, 1}, {3, 2}}}) {
        INFO(Name(kind) << ", " << v1::DataType_Name(weights) << ", " << kernels::Name(isa) << ", "
                        << Describe(stages));
        const ChoiceEvents scored = ScorePrompt(model, stages, weights, isa);
        CHECK(PromptDifference(scored, alone) <= RankTolerance(kind, weights, isa));
        if (WidthOne(stages)) CheckSameBits({{{1, 0}, scored}}, {{{1, 0}, alone}});
      }
    }
  }
}

}  // namespace
}  // namespace tessera::worker
