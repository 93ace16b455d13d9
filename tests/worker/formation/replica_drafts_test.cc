// Drafts change no token of a replica either, in any layout: stages and lanes, ranks even and not,
// prompts handed over, and after a member was lost.
#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/temporary_folder.h"
#include "tests/worker/engine/engine_harness.h"
#include "tests/worker/engine/scripted_drafts.h"
#include "tests/worker/formation/hand_over.h"
#include "tests/worker/formation/made_checkpoint.h"
#include "tests/worker/formation/replica_comparison.h"
#include "tests/worker/formation/replica_harness.h"
#include "tests/worker/model/tiny_model.h"

namespace tessera::worker {
namespace {

// A checkpoint, and layouts of it.
struct Served {
  const char* name;
  std::string folder;
  int32_t vocabulary;
  std::vector<std::vector<StageLayout>> layouts;
};

// Layers that attend, in a folder made now; and layers that keep a state of each sequence.
std::vector<Served> AllServed(const tests::TemporaryFolder& made,
                              const tests::TemporaryFolder& hybrid) {
  WriteMadeCheckpoint(made.path(), MadeModel::kDense);
  WriteMadeCheckpoint(hybrid.path(), MadeModel::kHybrid);
  return {{"dense",
           made.path().string(),
           kMadeVocabulary,
           {
               {},                         // one worker
               {{2, 1}, {3, 1}},           // two stages, so two lanes
               {{5, 2}},                   // two ranks
               {{5, 3, {0.5, 0.3, 0.2}}},  // three, unequal
               {{2, 2}, {1, 1}, {2, 3}},   // both
           }},
          {"qwen3_5",
           GoldenFolder("qwen3_5").string(),
           96,
           {{}, {{2, 1}, {1, 1}}, {{1, 1}, {1, 1}, {1, 1}}, {{3, 2, {0.7, 0.3}}}}},
          // Four key groups, and eight heads on four kv heads, over three ranks.
          {"hybrid",
           hybrid.path().string(),
           kMadeVocabulary,
           {{{5, 3}}, {{5, 3, {0.5, 0.3, 0.2}}}, {{2, 2}, {1, 1}, {2, 3}}}}};
}

v1::Submit Request(uint64_t id, int32_t max_tokens, float temperature,
                   int32_t vocabulary = kMadeVocabulary) {
  v1::Submit submit = MakeSubmit(
      id, Prompt(9 + 5 * static_cast<int64_t>(id), static_cast<uint32_t>(id), vocabulary),
      max_tokens);
  submit.set_ignore_eos(true);
  submit.set_top_logprobs(2);
  submit.mutable_sampling()->set_temperature(temperature);
  submit.mutable_sampling()->set_seed(id);
  return submit;
}

std::vector<v1::Submit> EveryRequest(int32_t vocabulary) {
  const auto request = [vocabulary](uint64_t id, int32_t max_tokens, float temperature) {
    return Request(id, max_tokens, temperature, vocabulary);
  };
  std::vector<v1::Submit> requests = {request(1, 30, 0), request(2, 30, 0.6F), request(3, 30, 1)};
  requests.push_back(request(4, 16, 1));
  requests.back().set_choice_count(3);
  requests.push_back(request(5, 24, 1));
  requests.back().mutable_sampling()->set_repetition_penalty(1.3F);
  requests.back().mutable_sampling()->set_presence_penalty(0.6F);
  requests.back().mutable_sampling()->set_frequency_penalty(0.8F);
  requests.push_back(request(6, 30, 1));
  for (int32_t id = 0; id < 40; ++id) requests.back().add_stop_token_ids(id);
  requests.back().set_min_tokens(4);
  requests.push_back(request(7, 12, 0));
  requests.back().set_prompt_logprobs(1);
  return requests;
}

KnownStreams StreamsOf(const std::vector<v1::Submit>& requests, const Answers& answers) {
  KnownStreams streams;
  for (const v1::Submit& request : requests) {
    std::vector<int32_t>& stream =
        streams.emplace_back(request.prompt_token_ids().begin(), request.prompt_token_ids().end());
    const std::vector<int32_t>& tokens = answers.at({request.submission_id(), 0}).tokens;
    stream.insert(stream.end(), tokens.begin(), tokens.end());
  }
  return streams;
}

ReplicaOptions WithDrafts(ReplicaOptions options, const KnownStreams& streams, DraftScript script) {
  options.draft_source = ScriptedDraftsOf(streams, script, 96);  // of the smallest vocabulary
  return options;
}

// Drafts that keep the leader waiting, once, where a sequence has reached a length.
class WaitingDrafts final : public DraftSource {
 public:
  struct Gate {
    std::atomic<bool> closed = true;
    std::promise<void> reached, opened;
  };

  WaitingDrafts(std::unique_ptr<DraftSource> drafts, int64_t length, std::shared_ptr<Gate> gate)
      : drafts_(std::move(drafts)), length_(length), gate_(std::move(gate)) {}

  void Propose(std::span<const int32_t> tokens, int64_t most,
               std::vector<int32_t>* drafts) override {
    if (std::ssize(tokens) >= length_ && gate_->closed.exchange(false)) {
      gate_->reached.set_value();
      gate_->opened.get_future().wait();
    }
    drafts_->Propose(tokens, most, drafts);
  }
  bool MayProposeNext(std::span<const int32_t> tokens) override {
    return drafts_->MayProposeNext(tokens);
  }

 private:
  const std::unique_ptr<DraftSource> drafts_;
  const int64_t length_;
  const std::shared_ptr<Gate> gate_;
};

TEST_CASE("every layout answers with drafts what it answers without, bit for bit") {
  const tests::TemporaryFolder made, hybrid;
  for (const Served& served : AllServed(made, hybrid)) {
    const std::vector<v1::Submit> requests = EveryRequest(served.vocabulary);
    for (const std::vector<StageLayout>& stages : served.layouts) {
      ReplicaOptions options;
      options.stages = stages;
      const Answers without = Run(served.folder, options, requests);
      const KnownStreams streams = StreamsOf(requests, without);
      for (const DraftScript script :
           {DraftScript::kRight, DraftScript::kSome, DraftScript::kHalf, DraftScript::kWrong}) {
        CAPTURE(served.name, stages.size(), static_cast<int>(script));
        PlannedReplica replica(served.folder, WithDrafts(options, streams, script));
        for (const v1::Submit& request : requests) replica.Submit(request);
        CheckSameBits(replica.WaitAll(), without);
        CHECK(HoldsNothing(replica));
        const v1::EngineLoad load = replica.load();
        CHECK(load.drafts() > 10);
        if (script == DraftScript::kRight) CHECK(load.accepted_draft_tokens(5) > 5);
      }
    }
  }
}

TEST_CASE("what a prefill replica hands over goes on with drafts") {
  const tests::TemporaryFolder made;
  WriteMadeCheckpoint(made.path(), MadeModel::kTiedWithBias);
  const bool states = GENERATE(false, true);
  const std::string folder = states ? GoldenFolder("qwen3_5").string() : made.path().string();
  const int32_t vocabulary = states ? 96 : kMadeVocabulary;
  std::vector<v1::Submit> requests;
  for (const uint64_t id : {1, 2, 3}) {
    requests.push_back(Request(id, 30, 0.5F * static_cast<float>(id - 1), vocabulary));
  }
  ReplicaOptions from, to;
  from.moves_kv = to.moves_kv = true;
  to.stages = {{2, 1}, {states ? 1 : 3, 1}};
  Split without{{folder, from}, {folder, to}};
  const Answers expected = without.Run(requests);
  const KnownStreams streams = StreamsOf(requests, expected);
  for (const DraftScript script : {DraftScript::kRight, DraftScript::kSome}) {
    CAPTURE(static_cast<int>(script));
    Split split{{folder, WithDrafts(from, streams, script)},
                {folder, WithDrafts(to, streams, script)}};
    CheckSameBits(split.Run(requests), expected);
    CHECK(split.prefill.load().drafts() == 0);  // it draws one token of each
    CHECK(split.decode.load().drafts() > 5);
    CHECK(split.decode.load().prompt_tokens() == 0);
    CHECK(HoldsNothing(split.prefill));
    CHECK(HoldsNothing(split.decode));
  }
}

TEST_CASE("a member is lost among drafts: the answer goes on from what was told") {
  const tests::TemporaryFolder made;
  WriteMadeCheckpoint(made.path(), MadeModel::kDense);
  const std::string folder = made.path().string();
  v1::Submit request = Request(2, 90, 1);
  ReplicaOptions options;
  options.stages = {{2, 1}, {3, 1}};
  const Answers without = Run(folder, options, {request});
  const std::vector<int32_t>& expected = without.at({2, 0}).tokens;
  REQUIRE(expected.size() == 90);
  const auto gate = std::make_shared<WaitingDrafts::Gate>();
  const DraftSourceFactory drafts =
      ScriptedDraftsOf(StreamsOf({request}, without), DraftScript::kSome, kMadeVocabulary);
  options.draft_source = [drafts, gate, length = request.prompt_token_ids_size() + 20] {
    return std::make_unique<WaitingDrafts>(drafts(), length, gate);
  };
  PlannedReplica replica(folder, options);
  replica.Submit(request);
  gate->reached.get_future().wait();
  replica.Kill(1);
  gate->opened.set_value();
  CHECK(absl::IsUnavailable(replica.WaitClosed()));
  const std::vector<int32_t> told = replica.WaitAll().at({2, 0}).tokens;
  REQUIRE(told.size() >= 20);
  REQUIRE(told.size() < 30);
  replica.Reform();
  request.set_attempt(2);
  request.mutable_output_token_ids()->Add(told.begin(), told.end());
  replica.Submit(request);
  std::vector<int32_t> all = told;
  const std::vector<int32_t> rest = replica.WaitAll().at({2, 0}).tokens;
  all.insert(all.end(), rest.begin(), rest.end());
  CHECK(all == expected);
  CHECK(replica.load().drafts() > 0);
}

}  // namespace
}  // namespace tessera::worker
