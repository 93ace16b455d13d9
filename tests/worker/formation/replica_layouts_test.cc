// Replicas of several workers give the tokens of one worker, whatever their layout.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>

#include "proto/layers/layers.h"
#include "proto/model/model_folder.h"
#include "tests/worker/engine/engine_harness.h"
#include "tests/worker/formation/hand_over.h"
#include "tests/worker/formation/replica_comparison.h"
#include "tests/worker/formation/replica_harness.h"
#include "tests/worker/model/tiny_model.h"

namespace tessera::worker {
namespace {

using Outcome = std::map<std::pair<uint64_t, int32_t>, ChoiceEvents>;

// Golden prompts, each with logprobs of every token, and a crowd beside them.
Outcome Run(const std::string& model, const ReplicaOptions& options) {
  PlannedReplica replica(GoldenFolder(model).string(), options);
  const std::vector<GoldenRun> runs = ReadGolden(model);
  for (size_t i = 0; i < runs.size(); ++i) {
    v1::Submit submit =
        MakeSubmit(i, runs[i].prompt, static_cast<int32_t>(runs[i].long_tokens.size()));
    submit.set_ignore_eos(true);
    submit.set_top_logprobs(0);
    replica.Submit(std::move(submit));
    v1::Submit crowd = MakeSubmit(1000 + i, Prompt(13 + 20 * i, i, 90), 20);
    crowd.set_ignore_eos(true);
    replica.Submit(std::move(crowd));
  }
  return replica.WaitAll();
}

void CheckTokens(const std::string& model, const Outcome& outcome) {
  const std::vector<GoldenRun> runs = ReadGolden(model);
  for (size_t i = 0; i < runs.size(); ++i) {
    const ChoiceEvents& choice = outcome.at({i, 0});
    INFO("prompt " << i << ": " << choice.error);
    CHECK(choice.finish == v1::FINISH_REASON_LENGTH);
    CHECK(choice.tokens == runs[i].long_tokens);
  }
}

int64_t LayersOf(const std::string& model) {
  const auto shape = ReadModelFolder(GoldenFolder(model).string());
  REQUIRE(shape.ok());
  return LayerCount(*shape);
}

// Of a stage of `model`. Ranks have whole groups of int4 columns.
int64_t MaxWidth(const std::string& model) {
  const auto shape = ReadModelFolder(GoldenFolder(model).string());
  REQUIRE(shape.ok());
  const v1::LayerKind& kind = shape->kinds(0);
  int64_t heads = kind.has_delta() ? kind.delta().key_heads() : kind.attention().heads();
  if (HasExperts(*shape)) heads = std::min(heads, MaxExperts(*shape));
  if (kind.ffn().has_experts()) return heads;
  if (!KeepsInt4(*shape)) return heads;
  return std::min<int64_t>(heads, kind.ffn().width() / shape->quantization().group_size());
}

bool IsOneStage(const std::string& model) {
  const auto shape = ReadModelFolder(GoldenFolder(model).string());
  REQUIRE(shape.ok());
  return NeedsOneStage(*shape);
}

TEST_CASE("stages of one worker each give one worker's tokens and logprobs, bit for bit") {
  for (const std::string& model : GoldenModels()) {
    INFO(model);
    const Outcome alone = Run(model, {});
    CheckTokens(model, alone);
    if (IsOneStage(model)) continue;
    ReplicaOptions options;
    options.stages = {{1, 1}, {LayersOf(model) - 1, 1}};
    const Outcome staged = Run(model, options);
    CheckTokens(model, staged);
    for (const auto& [key, choice] : alone) {
      const ChoiceEvents& other = staged.at(key);
      REQUIRE(other.logprobs.size() == choice.logprobs.size());
      CHECK(std::memcmp(other.logprobs.data(), choice.logprobs.data(),
                        choice.logprobs.size() * sizeof(float)) == 0);
    }
  }
}

TEST_CASE("stages of several ranks, before and behind stages of one, give one worker's tokens") {
  for (const std::string& model : GoldenModels()) {
    const int64_t layers = LayersOf(model);
    for (const std::vector<StageLayout>& stages : {std::vector<StageLayout>{{layers, 2}},
                                                   {{layers, 4}},
                                                   {{layers, 2, {0.64, 0.36}}},
                                                   {{layers, 3, {1, 7, 2}}},
                                                   {{1, 2, {1, 3}}, {layers - 1, 1}},
                                                   {{1, 2}, {layers - 1, 1}},
                                                   {{1, 1}, {layers - 1, 3}}}) {
      INFO(model << ", " << stages[0].layers << " x " << stages[0].width);
      if (std::max(stages.front().width, stages.back().width) > MaxWidth(model)) continue;
      if (stages.size() > 1 && IsOneStage(model)) continue;
      ReplicaOptions options;
      options.stages = stages;
      CheckTokens(model, Run(model, options));
    }
  }
}

// A pool in which all layers together keep 104 tokens, or on stages, where one has the layer that
// sees everything, 120.
TEST_CASE("stages and ranks keep windows in blocks of their own, and hold what one worker holds") {
  for (const char* model : {"gemma3", "olmo3", "gpt_oss"}) {
    std::vector<v1::Submit> requests;
    for (uint64_t id = 0; id < 3; ++id) {
      requests.push_back(
          MakeSubmit(id, Prompt(70 + static_cast<int64_t>(id), static_cast<uint32_t>(id), 90), 40));
      requests.back().set_ignore_eos(true);
    }
    const std::string folder = GoldenFolder(model).string();
    const Outcome roomy = worker::Run(folder, {}, requests);
    REQUIRE(LayersOf(model) == 2);
    for (const std::vector<StageLayout>& stages :
         {std::vector<StageLayout>{{2, 1}}, {{1, 1}, {1, 1}}, {{2, 2}}, {{1, 2}, {1, 1}}}) {
      INFO(model << ", " << stages.size() << " stages, the first of " << stages[0].width);
      ReplicaOptions options;
      options.stages = stages;
      options.kv_blocks = stages.size() > 1 ? 14 : 13;
      options.max_batched_tokens = 16;
      PlannedReplica replica(folder, options);
      CHECK(replica.ready(0).kv_blocks() >= 15);
      for (const v1::Submit& request : requests) replica.Submit(request);
      const Outcome tight = replica.WaitAll();
      for (const auto& [key, choice] : roomy) {
        INFO("request " << key.first << ": " << tight.at(key).error);
        CHECK(tight.at(key).tokens.size() == 40);
        CHECK(tight.at(key).tokens == choice.tokens);
      }
    }
  }
}

// A pool with the window of one sequence, and one more.
TEST_CASE("behind a window, the first prompt that parts from another at its last message") {
  for (const char* model : {"gemma3", "gpt_oss"}) {
    const std::string folder = GoldenFolder(model).string();
    const std::vector<int32_t> common = Prompt(56, 1, 90);
    std::vector<v1::Submit> requests;
    for (uint64_t id = 0; id < 3; ++id) {
      std::vector<int32_t> prompt = common;
      const std::vector<int32_t> message = Prompt(44, static_cast<uint32_t>(10 + id), 90);
      prompt.insert(prompt.end(), message.begin(), message.end());
      requests.push_back(MakeSubmit(id, prompt, 8));
      requests.back().set_message_begin_tokens(56);
      requests.back().set_ignore_eos(true);
    }
    const Outcome alone = worker::Run(folder, {}, requests);
    for (const std::vector<StageLayout>& stages :
         {std::vector<StageLayout>{{2, 1}}, {{1, 1}, {1, 1}}, {{2, 2}}}) {
      INFO(model << ", " << stages.size() << " stages, the first of " << stages[0].width);
      ReplicaOptions options;
      options.stages = stages;
      options.kv_blocks = stages.size() > 1 ? 15 : 14;
      options.max_batched_tokens = 16;
      PlannedReplica replica(folder, options);
      for (const v1::Submit& request : requests) {
        replica.Submit(request);
        const auto answers = replica.WaitAll();
        const ChoiceEvents& choice = answers.at({request.submission_id(), 0});
        INFO("request " << request.submission_id() << ": " << choice.error);
        CHECK(choice.tokens == alone.at({request.submission_id(), 0}).tokens);
        CHECK(choice.cached_tokens == (request.submission_id() == 0 ? 0 : 56));
      }
    }
  }
}

// A family of each part that attends, or routes, unlike the others.
TEST_CASE(
    "a golden prompt that one replica computes goes on at another with transformers' tokens") {
  for (const char* model : {"deepseek_v2", "deepseek_v3", "gemma2", "gemma3", "glm4_moe", "gpt_oss",
                            "llama4", "mistral_window", "olmo2", "phimoe", "smollm3_window"}) {
    INFO(model);
    const std::string folder = GoldenFolder(model).string();
    ReplicaOptions from, to;
    from.moves_kv = to.moves_kv = true;
    from.max_batched_tokens = 9;  // several steps a prompt
    from.stages = {{LayersOf(model), 2}};
    to.stages = {{1, 1}, {LayersOf(model) - 1, 1}};
    const std::vector<GoldenRun> runs = ReadGolden(model);
    std::vector<v1::Submit> requests;
    for (size_t i = 0; i < runs.size(); ++i) {
      requests.push_back(
          MakeSubmit(i, runs[i].prompt, static_cast<int32_t>(runs[i].long_tokens.size())));
      requests.back().set_ignore_eos(true);
    }
    Split split{{folder, from}, {folder, to}};
    CheckTokens(model, split.Run(requests));
    CHECK(split.decode.load().prompt_tokens() == 0);
  }
}

TEST_CASE("a latent that every rank holds is sent once to each rank that goes on with it") {
  const std::string folder = GoldenFolder("deepseek_v3").string();
  const auto bytes = [&](int from_ranks, int to_ranks) {
    ReplicaOptions from, to;
    from.moves_kv = to.moves_kv = true;
    from.stages = {{LayersOf("deepseek_v3"), from_ranks}};
    to.stages = {{LayersOf("deepseek_v3"), to_ranks}};
    Split split{{folder, from}, {folder, to}};
    v1::Submit submit = MakeSubmit(1, ReadGolden("deepseek_v3")[0].prompt, 4);
    submit.set_ignore_eos(true);
    PlayedHandOver hand_over(split.prefill, split.decode, "tcp");
    hand_over.Begin({submit});
    const Answers first = split.prefill.WaitAll();
    hand_over.GoOn(first);
    CHECK(split.decode.WaitAll().at({1, 0}).tokens.size() == 3);
    return first.at({1, 0}).kv_transfer.bytes();
  };
  const int64_t once = bytes(1, 1);
  CHECK(bytes(2, 1) == once);
  CHECK(bytes(4, 1) == once);
  CHECK(bytes(1, 2) == 2 * once);
  CHECK(bytes(2, 2) == 2 * once);
}

// The second turn finds the first one's prompt in the decode side's prefix cache.
TEST_CASE("of layers with a window, a prompt is handed over with what is still seen alone") {
  for (const char* model : {"gemma3", "gpt_oss"}) {
    INFO(model);
    const auto shape = ReadModelFolder(GoldenFolder(model).string());
    REQUIRE(shape.ok());
    const v1::Attention& attention = shape->kinds(0).attention();
    const int64_t token_bytes = int64_t{2} * attention.kv_heads() * attention.head_dim() * 4;
    const std::string folder = GoldenFolder(model).string();
    ReplicaOptions from, to;
    from.moves_kv = to.moves_kv = true;
    from.max_batched_tokens = 24;
    from.stages = {{2, 2}};
    to.stages = {{1, 1}, {1, 1}};
    from.kv_blocks = to.kv_blocks = 48;  // all rooms are kept at once
    Split split{{folder, from}, {folder, to}};
    for (const int64_t length : {60, 90}) {
      std::vector<v1::Submit> requests;
      for (const uint32_t seed : {1, 2, 3}) {
        requests.push_back(
            MakeSubmit(static_cast<uint64_t>(100 * length + seed), Prompt(length, seed, 90), 20));
        requests.back().set_ignore_eos(true);
        requests.back().set_top_logprobs(0);
      }
      const Answers alone = worker::Run(folder, {}, requests);
      const Answers got = split.Run(requests);
      for (const auto& [key, choice] : alone) {
        const ChoiceEvents& other = got.at(key);
        INFO("request " << key.first << ": " << other.error);
        CHECK(other.tokens == choice.tokens);
        const int64_t tokens = other.kv_transfer.bytes() / token_bytes;  // and what frames take
        if (length == 60) CHECK(tokens >= length + attention.window() - 1);
        CHECK(tokens <= length + attention.window() + 20);
      }
      CHECK(split.decode.load().prompt_tokens() == 0);
      if (length == 60) continue;
      // Who lost its replica goes on at any other.
      v1::Submit resumed = requests[1];
      resumed.set_submission_id(1);
      const std::vector<int32_t>& tokens = alone.at({requests[1].submission_id(), 0}).tokens;
      resumed.mutable_output_token_ids()->Add(tokens.begin(), tokens.begin() + 7);
      split.prefill.Submit(resumed);
      CHECK(split.prefill.WaitAll().at({1, 0}).tokens ==
            std::vector<int32_t>(tokens.begin() + 7, tokens.end()));
    }
    CHECK(HoldsNothing(split.prefill));
    CHECK(HoldsNothing(split.decode));
  }
}

// Prompts that share a beginning, sent in two waves, of which the second finds it cached.
Outcome RunCrowd(const std::string& folder, const ReplicaOptions& options) {
  PlannedReplica replica(folder, options);
  Outcome all;
  for (uint64_t id = 0; id < 6; ++id) {
    std::vector<int32_t> prompt = Prompt(40, 7, 90);
    const std::vector<int32_t> own =
        Prompt(10 + static_cast<int64_t>(5 * id), static_cast<uint32_t>(20 + id), 90);
    prompt.insert(prompt.end(), own.begin(), own.end());
    v1::Submit submit = MakeSubmit(id, prompt, 16);
    submit.set_ignore_eos(true);
    submit.set_top_logprobs(0);
    replica.Submit(std::move(submit));
    if (id == 2) all = replica.WaitAll();
  }
  all.merge(replica.WaitAll());
  return all;
}

TEST_CASE("KV in 8 bits: one worker's tokens in 8 bits, whatever the layout, steps and pool") {
  const v1::DataType type = GENERATE(v1::DATA_TYPE_INT8, v1::DATA_TYPE_FP8);
  // Plain heads, windows of their own blocks, latents, and states beside keys and values.
  for (const std::string model : {"llama", "gemma3", "deepseek_v3", "qwen3_5"}) {
    INFO(model << ", " << v1::DataType_Name(type));
    const std::string folder = GoldenFolder(model).string();
    const int64_t layers = LayersOf(model);
    ReplicaOptions options;
    options.kv_dtype = type;
    const Outcome alone = RunCrowd(folder, options);
    for (const auto& [key, choice] : alone) REQUIRE(choice.tokens.size() == 16);
    // It is not what 32 bits give.
    const Outcome wide = RunCrowd(folder, {});
    CHECK(wide.at({0, 0}).logprobs != alone.at({0, 0}).logprobs);

    const auto same_bits = [&](const char* how, const ReplicaOptions& other) {
      INFO(how);
      const Outcome got = RunCrowd(folder, other);
      for (const auto& [key, choice] : alone) {
        CHECK(got.at(key).tokens == choice.tokens);
        CHECK(got.at(key).logprobs == choice.logprobs);
      }
    };
    ReplicaOptions other = options;
    other.max_batched_tokens = 11;
    same_bits("short steps", other);
    other = options;
    other.prefix_cache = false;
    same_bits("no prefix cache", other);
    other = options;
    other.kv_blocks = 16;  // of one sequence, and a few blocks more
    same_bits("a pool for which sequences wait, and that takes blocks from them", other);
    if (!IsOneStage(model)) {
      other = options;
      other.stages = {{1, 1}, {layers - 1, 1}};
      same_bits("stages", other);
    }
    for (const std::vector<double>& fractions : {std::vector<double>{1, 1}, {3, 1}}) {
      if (MaxWidth(model) < 2) continue;
      other = options;
      other.stages = {{layers, 2, fractions}};
      const Outcome ranks = RunCrowd(folder, other);
      for (const auto& [key, choice] : alone) CHECK(ranks.at(key).tokens == choice.tokens);
    }
  }
}

TEST_CASE("KV in 8 bits is handed over as it is, and to and from pools of other types") {
  for (const char* model : {"llama", "gemma3", "deepseek_v3", "qwen3_5"}) {
    INFO(model);
    const std::string folder = GoldenFolder(model).string();
    std::vector<v1::Submit> requests;
    for (uint64_t id = 0; id < 4; ++id) {
      const auto length = 30 + static_cast<int64_t>(9 * id);
      requests.push_back(MakeSubmit(id, Prompt(length, static_cast<uint32_t>(3 + id), 90), 12));
      requests.back().set_ignore_eos(true);
    }
    const auto run = [&](v1::DataType prefill, v1::DataType decode) {
      ReplicaOptions from, to;
      from.moves_kv = to.moves_kv = true;
      from.kv_dtype = prefill;
      to.kv_dtype = decode;
      from.max_batched_tokens = 9;
      from.stages = {{LayersOf(model), static_cast<int>(std::min<int64_t>(2, MaxWidth(model)))}};
      Split split{{folder, from}, {folder, to}};
      const Answers answers = split.Run(requests);
      CHECK(split.decode.load().prompt_tokens() == 0);
      CHECK(HoldsNothing(split.prefill));
      CHECK(HoldsNothing(split.decode));
      return answers;
    };
    ReplicaOptions options;
    for (const v1::DataType type : {v1::DATA_TYPE_INT8, v1::DATA_TYPE_FP8}) {
      options.kv_dtype = type;
      const Answers alone = worker::Run(folder, options, requests);
      for (const auto& [key, choice] : run(type, type))
        CHECK(choice.tokens == alone.at(key).tokens);
    }
    // Of unlike types: the first token is what the prefill side makes of its own, and decoding goes
    // on from what became of its keys and values (tests/kvcache and tests/worker/transfer say how
    // near they are).
    const Answers wide = worker::Run(folder, {}, requests);
    for (const auto& [key, choice] : run(v1::DATA_TYPE_FLOAT32, v1::DATA_TYPE_INT8)) {
      CHECK(choice.finish == v1::FINISH_REASON_LENGTH);
      CHECK(choice.tokens.size() == 12);
      CHECK(choice.tokens[0] == wide.at(key).tokens[0]);
    }
    options.kv_dtype = v1::DATA_TYPE_INT8;
    const Answers narrow = worker::Run(folder, options, requests);
    for (const auto& [key, choice] : run(v1::DATA_TYPE_INT8, v1::DATA_TYPE_FLOAT32)) {
      CHECK(choice.finish == v1::FINISH_REASON_LENGTH);
      CHECK(choice.tokens.size() == 12);
      CHECK(choice.tokens[0] == narrow.at(key).tokens[0]);
    }
  }
}

// Before a norm, all ranks have the same bits; behind one, only what rank 0 sends them.
TEST_CASE("behind a norm, all ranks go on with rank 0's bits") {
  const std::string model = "opt_projected_post_norm";
  ReplicaOptions options;
  options.stages = {{1, 2}, {LayersOf(model) - 1, 2}};
  const Outcome exact = Run(model, options);
  options.inexact = {1, 3};  // rank 1 of both stages
  CheckSameBits(Run(model, options), exact);
  // Rank 0 is off: so are all, and that shows.
  options.inexact = {0};
  const Outcome off = Run(model, options);
  CHECK(off.at({0, 0}).logprobs != exact.at({0, 0}).logprobs);
}

}  // namespace
}  // namespace tessera::worker
