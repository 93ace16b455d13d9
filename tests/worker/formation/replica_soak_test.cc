// Kept states, drafts, preemption, cancels, lost members and prompts that another replica computes,
// all at once: conversations in random order get, bit for bit, what a replica of the same layout
// gives that has none of it and one request at a time. TESSERA_RANDOM_PLANS says how many seeds are
// tried.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/temporary_folder.h"
#include "tests/worker/engine/scripted_drafts.h"
#include "tests/worker/engine/submits.h"
#include "tests/worker/formation/hand_over.h"
#include "tests/worker/formation/made_checkpoint.h"
#include "tests/worker/formation/random_plans.h"
#include "tests/worker/formation/replica_comparison.h"
#include "tests/worker/formation/replica_harness.h"
#include "tests/worker/model/tiny_model.h"
#include "worker/drafts/head_source.h"
#include "worker/drafts/ngram_source.h"

namespace tessera::worker {
namespace {

constexpr int kRequests = 24;

struct SoakModel {
  std::string folder;
  int32_t vocabulary = 0;
  bool head = false;
  std::vector<std::vector<StageLayout>> layouts;
};

// All keep states: of two key groups, with a head for further tokens, and of four key groups in
// `made`.
std::vector<SoakModel> SoakModels(const std::filesystem::path& made) {
  WriteMadeCheckpoint(made, MadeModel::kHybrid);
  return {{GoldenFolder("qwen3_5").string(),
           96,
           false,
           {{}, {{2, 1}, {1, 1}}, {{1, 1}, {1, 1}, {1, 1}}, {{3, 2}}}},
          {"tests/golden/drafts/qwen3_5", 48, true, {{}, {{1, 1}, {1, 1}}, {{2, 2}}}},
          {made.string(),
           kMadeVocabulary,
           false,
           {{}, {{2, 1}, {3, 1}}, {{5, 3}}, {{2, 2, {0.7, 0.3}}, {3, 1}}}}};
}

// Requests of conversations that share beginnings, and what a plain replica answers.
struct Conversations {
  std::vector<v1::Submit> requests;
  Answers expected;
  KnownStreams streams;
};

v1::Submit OneRequest(const std::vector<int32_t>& history, uint64_t id, int32_t vocabulary,
                      Numbers* numbers) {
  std::vector<int32_t> prompt(
      history.begin(),
      history.begin() + numbers->From(1, std::min<int>(60, static_cast<int>(history.size()))));
  const auto shared = static_cast<int32_t>(prompt.size());
  const auto more = Prompt(numbers->From(1, 16), static_cast<uint32_t>(100 + id), vocabulary);
  prompt.insert(prompt.end(), more.begin(), more.end());
  v1::Submit submit = MakeSubmit(id, prompt, numbers->From(1, 40), numbers->From(0, 2));
  const float temperatures[] = {0, 0.6F, 1};
  submit.mutable_sampling()->set_temperature(temperatures[numbers->From(0, 2)]);
  submit.mutable_sampling()->set_seed(id);
  submit.set_ignore_eos(true);
  submit.set_top_logprobs(numbers->From(-1, 2));
  submit.set_message_begin_tokens(shared);
  submit.set_message_end_tokens(static_cast<int32_t>(prompt.size()) - numbers->From(0, 2));
  if (numbers->From(0, 4) == 0) submit.set_choice_count(3);
  if (numbers->From(0, 4) == 0) submit.mutable_sampling()->set_repetition_penalty(1.3F);
  if (numbers->From(0, 5) == 0) submit.set_prompt_logprobs(1);
  if (numbers->From(0, 4) == 0) {
    for (int32_t stop = 0; stop < 8; ++stop) submit.add_stop_token_ids(stop);
    submit.set_min_tokens(3);
  }
  return submit;
}

// The bits of a replica depend on its stages and kernels alone: `plain` has those.
Conversations Converse(const SoakModel& model, ReplicaOptions plain, Numbers* numbers) {
  plain.prefix_cache = false;
  plain.state_cache_bytes = 0;
  PlannedReplica replica(model.folder, plain);
  std::vector<std::vector<int32_t>> histories;
  for (uint32_t i = 0; i < 3; ++i)
    histories.push_back(Prompt(numbers->From(4, 60), i + 1, model.vocabulary));
  Conversations all;
  for (uint64_t id = 1; id <= kRequests; ++id) {
    const auto& history = histories[numbers->From(0, static_cast<int>(histories.size()) - 1)];
    const v1::Submit request = OneRequest(history, id, model.vocabulary, numbers);
    all.requests.push_back(request);
    replica.Submit(request);
    all.expected = replica.WaitAll();
    std::vector<int32_t> stream(request.prompt_token_ids().begin(),
                                request.prompt_token_ids().end());
    const std::vector<int32_t>& answer = all.expected.at({id, 0}).tokens;
    stream.insert(stream.end(), answer.begin(), answer.end());
    all.streams.push_back(stream);
    histories.push_back(std::move(stream));
  }
  return all;
}

ReplicaOptions RandomOptions(const SoakModel& model, ReplicaOptions options,
                             const KnownStreams& streams, Numbers* numbers) {
  options.kv_blocks = numbers->From(18, 40);
  options.max_batched_tokens = numbers->From(9, 48);
  options.prefix_cache = numbers->From(0, 5) != 0;
  const int64_t room[] = {0, 3 << 10, 12 << 10, 1 << 20};
  options.state_cache_bytes = room[numbers->From(0, 3)];
  const int drafts = numbers->From(0, model.head ? 8 : 6);
  if (drafts < 5) {
    options.draft_source =
        ScriptedDraftsOf(streams,
                         std::vector{DraftScript::kRight, DraftScript::kSome, DraftScript::kHalf,
                                     DraftScript::kWrong, DraftScript::kForeign}[drafts],
                         model.vocabulary);
  } else if (drafts < 7) {
    options.draft_source = [] { return std::make_unique<NgramSource>(); };
  } else {
    options.head_drafts = true;
    if (drafts == 7) options.draft_source = [] { return std::make_unique<HeadSource>(); };
  }
  return options;
}

// What `got` has of the requests, but of those that were cancelled, is what was expected.
void Check(const std::vector<v1::Submit>& requests, const std::set<uint64_t>& cancelled,
           const Answers& got, const Answers& expected) {
  Answers some, same;
  for (const v1::Submit& request : requests) {
    const uint64_t id = request.submission_id();
    for (int32_t choice = 0; choice < request.choice_count(); ++choice) {
      INFO("request " << id << ", choice " << choice);
      const std::vector<int32_t>& whole = expected.at({id, choice}).tokens;
      if (cancelled.contains(id)) {
        const auto found = got.find({id, choice});
        if (found == got.end()) continue;
        const std::vector<int32_t>& part = found->second.tokens;
        REQUIRE(part.size() <= whole.size());
        CHECK(std::equal(part.begin(), part.end(), whole.begin()));
        continue;
      }
      REQUIRE(got.contains({id, choice}));
      some[{id, choice}] = got.at({id, choice});
      same[{id, choice}] = expected.at({id, choice});
    }
  }
  CheckSameBits(some, same);
}

// What all seeds together came across.
struct Seen {
  uint64_t drafts = 0, accepted = 0, preemptions = 0, found_tokens = 0, moved = 0, losses = 0;

  void Add(const v1::EngineLoad& load) {
    drafts += load.drafts();
    for (const uint64_t tokens : load.accepted_draft_tokens()) accepted += tokens;
    preemptions += load.preemptions();
    found_tokens += load.prefix_hits_tokens();
  }
};

// Those of one choice go on in a replica that lost a member and was formed again.
void LoseMember(PlannedReplica& replica, const std::vector<v1::Submit>& wave,
                const Answers& expected, Numbers* numbers) {
  std::vector<v1::Submit> single;
  for (const v1::Submit& request : wave) {
    if (request.choice_count() == 1) single.push_back(request);
  }
  for (const v1::Submit& request : single) replica.Submit(request);
  std::this_thread::sleep_for(std::chrono::milliseconds(numbers->From(0, 20)));
  replica.Kill(replica.members() - 1);
  const Answers heard = replica.WaitAll();  // until all have ended, or the session has
  replica.Reform();
  std::map<uint64_t, std::vector<int32_t>> before;
  for (v1::Submit request : single) {
    const uint64_t id = request.submission_id();
    const auto found = heard.find({id, 0});
    if (found != heard.end()) before[id] = found->second.tokens;
    if (found != heard.end() && (found->second.finish == v1::FINISH_REASON_LENGTH ||
                                 found->second.finish == v1::FINISH_REASON_STOP))
      continue;
    request.set_attempt(2);
    request.set_prompt_logprobs(-1);
    request.mutable_output_token_ids()->Add(before[id].begin(), before[id].end());
    replica.Submit(request);
  }
  const Answers rest = replica.WaitAll();
  for (const v1::Submit& request : single) {
    const uint64_t id = request.submission_id();
    INFO("request " << id << ", after a loss behind " << before[id].size() << " tokens");
    std::vector<int32_t> tokens = before[id];
    if (rest.contains({id, 0})) {
      const std::vector<int32_t>& more = rest.at({id, 0}).tokens;
      tokens.insert(tokens.end(), more.begin(), more.end());
    }
    CHECK(tokens == expected.at({id, 0}).tokens);
  }
}

std::vector<v1::Submit> NextWave(const std::vector<v1::Submit>& requests, size_t* next,
                                 Numbers* numbers) {
  const size_t count = std::min<size_t>(numbers->From(1, 6), requests.size() - *next);
  std::vector<v1::Submit> wave(requests.begin() + *next, requests.begin() + *next + count);
  *next += count;
  return wave;
}

void RunTogether(const SoakModel& model, const ReplicaOptions& options, const Conversations& all,
                 Numbers* numbers, Seen* seen) {
  PlannedReplica replica(model.folder, options);
  for (size_t next = 0; next < all.requests.size();) {
    const std::vector<v1::Submit> wave = NextWave(all.requests, &next, numbers);
    if (replica.members() > 1 && numbers->From(0, 4) == 0) {
      seen->Add(replica.load());
      LoseMember(replica, wave, all.expected, numbers);
      ++seen->losses;
      continue;
    }
    std::set<uint64_t> cancelled;
    for (const v1::Submit& request : wave) {
      replica.Submit(request);
      if (numbers->From(0, 7) != 0) continue;
      std::this_thread::sleep_for(std::chrono::milliseconds(numbers->From(0, 5)));
      replica.Cancel(request.submission_id());
      cancelled.insert(request.submission_id());
    }
    Check(wave, cancelled, replica.WaitAll(), all.expected);
  }
  CHECK(HoldsNothing(replica));
  seen->Add(replica.load());
}

// Two prompts of a wave at most go from one replica to the other: they hold rooms at once.
void RunApart(const SoakModel& model, ReplicaOptions from, ReplicaOptions to,
              const Conversations& all, Numbers* numbers, Seen* seen) {
  from.moves_kv = to.moves_kv = true;
  to.kv_blocks = std::max(to.kv_blocks, 32);
  PlannedReplica prefill(model.folder, from), decode(model.folder, to);
  for (size_t next = 0; next < all.requests.size();) {
    const std::vector<v1::Submit> wave = NextWave(all.requests, &next, numbers);
    std::vector<v1::Submit> apart, here;
    for (const v1::Submit& request : wave) {
      const bool moves =
          request.choice_count() == 1 && request.max_tokens() > 1 && apart.size() < 2;
      (moves ? apart : here).push_back(request);
    }
    for (const v1::Submit& request : here) decode.Submit(request);
    PlayedHandOver hand_over(prefill, decode, "tcp");
    hand_over.Begin(apart);
    const Answers first = prefill.WaitAll();
    hand_over.GoOn(first);
    const Answers rest = decode.WaitAll();
    Check(here, {}, rest, all.expected);
    Check(apart, {}, hand_over.Join(first, rest), all.expected);
    seen->moved += apart.size();
  }
  CHECK(HoldsNothing(prefill));
  CHECK(HoldsNothing(decode));
  seen->Add(prefill.load());
  seen->Add(decode.load());
}

TEST_CASE("conversations get the same bits, whatever is kept, drafted, preempted, lost and moved") {
  const tests::TemporaryFolder made;
  const std::vector<SoakModel> models = SoakModels(made.path());
  Seen seen;
  for (int seed = 0; seed < RandomPlanCount(); ++seed) {
    Numbers numbers(static_cast<uint64_t>(seed) * 104'729 + 3);
    const SoakModel& model = models[static_cast<size_t>(seed) % models.size()];
    ReplicaOptions plain;
    plain.isas = {numbers.OneIsa()};
    plain.stages = model.layouts[numbers.From(0, static_cast<int>(model.layouts.size()) - 1)];
    const Conversations all = Converse(model, plain, &numbers);
    const ReplicaOptions options = RandomOptions(model, plain, all.streams, &numbers);
    INFO("seed " << seed << ", " << model.folder << ": " << Describe(options) << ", blocks "
                 << options.kv_blocks << ", states " << options.state_cache_bytes);
    if (seed % 4 != 2) {
      RunTogether(model, options, all, &numbers, &seen);
      continue;
    }
    ReplicaOptions from = RandomOptions(model, plain, all.streams, &numbers);
    from.head_drafts = options.head_drafts;  // whose keys and values are handed over, too
    if (options.head_drafts) from.draft_source = options.draft_source;
    RunApart(model, from, options, all, &numbers, &seen);
  }
  CHECK(seen.accepted > 100);
  CHECK(seen.drafts > 100);
  CHECK(seen.preemptions > 0);
  CHECK(seen.found_tokens > 100);
  CHECK(seen.moved > 0);
  CHECK(seen.losses > 0);
}

}  // namespace
}  // namespace tessera::worker
