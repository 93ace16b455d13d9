// Drafts of a model's own head for further tokens, and of another model: they change no token in
// any layout, and what knows what comes is believed.
#include <catch2/catch.hpp>
#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "proto/layers/layers.h"
#include "proto/model/model_folder.h"
#include "tests/temporary_folder.h"
#include "tests/worker/engine/engine_harness.h"
#include "tests/worker/formation/hand_over.h"
#include "tests/worker/formation/replica_comparison.h"
#include "tests/worker/formation/replica_harness.h"
#include "tests/worker/model/tiny_model.h"
#include "third_party/absl/str_cat.h"
#include "worker/drafts/head_source.h"

namespace tessera::worker {
namespace {

constexpr int32_t kVocabulary = 48;

v1::Submit Request(uint64_t id, int32_t max_tokens, float temperature) {
  v1::Submit submit = MakeSubmit(
      id, Prompt(7 + 4 * static_cast<int64_t>(id), static_cast<uint32_t>(id), 32), max_tokens);
  submit.set_ignore_eos(true);
  submit.set_top_logprobs(1);
  submit.mutable_sampling()->set_temperature(temperature);
  submit.mutable_sampling()->set_seed(id);
  return submit;
}

std::vector<v1::Submit> EveryRequest() {
  std::vector<v1::Submit> requests = {Request(1, 40, 0), Request(2, 40, 0.6F), Request(3, 40, 1),
                                      Request(4, 20, 1), Request(5, 30, 1),    Request(6, 12, 0)};
  requests[3].set_choice_count(3);
  requests[4].mutable_sampling()->set_repetition_penalty(1.3F);
  for (int32_t id = 0; id < 16; ++id) requests[4].add_stop_token_ids(id);
  requests[5].set_prompt_logprobs(1);
  return requests;
}

ReplicaOptions WithHead(ReplicaOptions options) {
  options.head_drafts = true;
  return options;
}

// All drafts are tried, whether they pay or not.
ReplicaOptions WithEveryDraft(ReplicaOptions options) {
  options.draft_source = [] { return std::make_unique<HeadSource>(); };
  return options;
}

uint64_t Accepted(const v1::EngineLoad& load) {
  uint64_t sum = 0;
  for (const uint64_t tokens : load.accepted_draft_tokens()) sum += tokens;
  return sum;
}

// Replicas that `drafts` describes, of several layouts where there are two layers, answer as those
// without drafts.
void CheckLayouts(const std::string& folder, const std::vector<v1::Submit>& requests,
                  const std::function<ReplicaOptions(ReplicaOptions)>& drafts) {
  std::vector<std::vector<StageLayout>> layouts = {
      {}, {{1, 1}, {1, 1}}, {{2, 2}}, {{1, 1}, {1, 2, {0.7, 0.3}}}};
  if (LayerCount(*ReadModelFolder(folder)) != 2) layouts.resize(1);
  for (const std::vector<StageLayout>& stages : layouts) {
    CAPTURE(folder, stages.size());
    ReplicaOptions options;
    options.stages = stages;
    const Answers without = Run(folder, options, requests);
    PlannedReplica replica(folder, drafts(options));
    for (const v1::Submit& request : requests) replica.Submit(request);
    CheckSameBits(replica.WaitAll(), without);
    CHECK(HoldsNothing(replica));
    CHECK(replica.load().drafts() > 0);
  }
}

constexpr char kDecoded[] = "tests/golden/drafts/glm4_moe";

// Prompts that one replica computes and another goes on with are answered as those without drafts.
void CheckHandOver(const std::function<ReplicaOptions(ReplicaOptions)>& drafts) {
  const std::vector<v1::Submit> requests = {Request(1, 30, 0), Request(2, 30, 1)};
  ReplicaOptions options;
  options.moves_kv = true;
  Split without{{kDecoded, options}, {kDecoded, options}};
  const Answers expected = without.Run(requests);
  Split split{{kDecoded, drafts(options)}, {kDecoded, drafts(options)}};
  CheckSameBits(split.Run(requests), expected);
  CHECK(split.prefill.load().drafts() == 0);
  CHECK(HoldsNothing(split.decode));
}

TEST_CASE("every layout answers with a head's drafts what it answers without, bit for bit") {
  for (const char* name : {"qwen3_5", "deepseek_v3", "glm4_moe"}) {
    CheckLayouts(StrCat("tests/golden/drafts/", name), EveryRequest(), WithHead);
  }
}

TEST_CASE("prompts that another replica computed go on with a head's drafts") {
  CheckHandOver(WithHead);
}

TEST_CASE(
    "after a hand-over a head proposes what it would without: its keys and values came, too") {
  for (const char* name : {"qwen3_5", "deepseek_v3", "glm4_moe"}) {
    for (const std::vector<StageLayout>& stages :
         std::vector<std::vector<StageLayout>>{{}, {{1, 1}, {1, 2}}}) {
      CAPTURE(name, stages.size());
      const std::string folder = StrCat("tests/golden/drafts/", name);
      ReplicaOptions options = WithEveryDraft(WithHead({}));
      options.prefix_cache = false;
      options.moves_kv = true;
      ReplicaOptions staged = options;
      staged.stages = stages;
      const v1::Submit request = Request(3, 60, 0);
      Split split{{folder, staged}, {folder, options}};
      const Answers answers = split.Run({request});
      // The same begins behind the first token.
      v1::Submit rest = request;
      rest.add_output_token_ids(answers.at({3, 0}).tokens.at(0));
      PlannedReplica whole(folder, options);
      whole.Submit(rest);
      whole.WaitAll();
      CHECK(whole.load().draft_tokens() > 0);
      CHECK(split.decode.load().draft_tokens() == whole.load().draft_tokens());
      CHECK(Accepted(split.decode.load()) == Accepted(whole.load()));
    }
  }
}

// A Qwen3.5 whose next token is always the one after the last, and whose head knows that: it looks
// at the embedding, whose norm keeps it, and not at the row before, whose norm makes it 0.
class CyclicModel {
 public:
  explicit CyclicModel(bool swapped_inputs, bool swapped_norms) {
    AddEach("model.embed_tokens.weight", {kSize, kSize},
            [](int64_t i, int64_t j) { return i == j ? 1.0F : 0.0F; });
    AddEach("lm_head.weight", {kSize, kSize},
            [](int64_t i, int64_t j) { return (j + 1) % kSize == i ? 1.0F : 0.0F; });
    AddEach("model.norm.weight", {kSize}, Nothing);
    AddLayer("model.layers.0.");
    AddLayer("mtp.layers.0.");
    AddEach("mtp.norm.weight", {kSize}, Nothing);
    AddEach("mtp.pre_fc_norm_embedding.weight", {kSize},
            [=](int64_t, int64_t) { return swapped_norms ? -1.0F : 0.0F; });
    AddEach("mtp.pre_fc_norm_hidden.weight", {kSize},
            [=](int64_t, int64_t) { return swapped_norms ? 0.0F : -1.0F; });
    AddEach("mtp.fc.weight", {kSize, 2 * kSize}, [=](int64_t i, int64_t j) {
      const bool both = swapped_norms;
      const bool first = j == i, second = j == i + kSize;
      return (both && (first || second)) || (!both && (swapped_inputs ? second : first)) ? 1.0F
                                                                                         : 0.0F;
    });
  }

  void Write(const std::filesystem::path& folder) const {
    std::ofstream file(folder / "model.safetensors", std::ios::binary);
    std::string header = header_ + "}";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const auto header_bytes = static_cast<uint64_t>(header.size());
    file.write(reinterpret_cast<const char*>(&header_bytes), sizeof(header_bytes));
    file << header;
    file.write(reinterpret_cast<const char*>(values_.data()),
               static_cast<std::streamsize>(values_.size() * sizeof(float)));
    REQUIRE(file.flush());
    std::ofstream config(folder / "config.json");
    config << R"({"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text",
      "hidden_size": 32, "intermediate_size": 8, "num_hidden_layers": 1, "vocab_size": 32,
      "layer_types": ["full_attention"], "num_attention_heads": 2, "num_key_value_heads": 1,
      "head_dim": 8, "hidden_act": "silu", "rms_norm_eps": 1e-6, "max_position_embeddings": 512,
      "rope_parameters": {"rope_type": "default", "rope_theta": 100.0,
        "partial_rotary_factor": 0.5},
      "tie_word_embeddings": false, "torch_dtype": "float32", "bos_token_id": 0,
      "eos_token_id": 1, "mtp_num_hidden_layers": 1})";
    REQUIRE(config.flush());
  }

 private:
  static constexpr int64_t kSize = 32;

  using Value = std::function<float(int64_t, int64_t)>;
  static float Nothing(int64_t, int64_t) { return 0; }
  static float Something(int64_t i, int64_t j) {
    return static_cast<float>((i * 7 + j * 3) % 11 - 5) * 0.05F;
  }

  void AddEach(const std::string& name, const std::vector<int64_t>& shape, const Value& value) {
    const size_t begin = values_.size() * sizeof(float);
    const int64_t columns = shape.size() == 2 ? shape[1] : 1;
    for (int64_t i = 0; i < shape[0]; ++i) {
      for (int64_t j = 0; j < columns; ++j) values_.push_back(value(i, j));
    }
    const std::string sizes =
        shape.size() == 2 ? StrCat(shape[0], ",", shape[1]) : StrCat(shape[0]);
    header_ = StrCat(header_, header_.empty() ? "{" : ",", "\"", name,
                     "\":{\"dtype\":\"F32\",\"shape\":[", sizes, "],\"data_offsets\":[", begin, ",",
                     values_.size() * sizeof(float), "]}");
  }

  // It attends, and adds nothing.
  void AddLayer(const std::string& prefix) {
    AddEach(prefix + "input_layernorm.weight", {kSize}, Nothing);
    AddEach(prefix + "post_attention_layernorm.weight", {kSize}, Nothing);
    AddEach(prefix + "self_attn.q_proj.weight", {32, kSize}, Something);
    AddEach(prefix + "self_attn.k_proj.weight", {8, kSize}, Something);
    AddEach(prefix + "self_attn.v_proj.weight", {8, kSize}, Something);
    AddEach(prefix + "self_attn.o_proj.weight", {kSize, 16}, Nothing);
    AddEach(prefix + "self_attn.q_norm.weight", {8}, Nothing);
    AddEach(prefix + "self_attn.k_norm.weight", {8}, Nothing);
    AddEach(prefix + "mlp.gate_proj.weight", {8, kSize}, Something);
    AddEach(prefix + "mlp.up_proj.weight", {8, kSize}, Something);
    AddEach(prefix + "mlp.down_proj.weight", {kSize, 8}, Nothing);
  }

  std::string header_;
  std::vector<float> values_;
};

// The part of a head's drafts that stand while a greedy answer of 64 tokens is made.
double AcceptedPart(bool swapped_inputs, bool swapped_norms) {
  const tests::TemporaryFolder folder;
  CyclicModel(swapped_inputs, swapped_norms).Write(folder.path());
  v1::Submit submit = Request(1, 64, 0);
  PlannedReplica replica(folder.path().string(), WithHead({}));
  replica.Submit(submit);
  const std::vector<int32_t> tokens = replica.WaitAll().at({1, 0}).tokens;
  REQUIRE(tokens.size() == 64);
  int32_t last = *submit.prompt_token_ids().rbegin();
  for (const int32_t token : tokens) {
    REQUIRE(token == (last + 1) % 32);
    last = token;
  }
  const v1::EngineLoad load = replica.load();
  REQUIRE(load.draft_tokens() > 0);
  return static_cast<double>(Accepted(load)) / static_cast<double>(load.draft_tokens());
}

TEST_CASE("a head that knows what comes is right nearly always; with its inputs swapped, hardly") {
  CHECK(AcceptedPart(false, false) >= 0.95);
  CHECK(AcceptedPart(/*swapped_inputs=*/true, false) < 0.5);
  CHECK(AcceptedPart(false, /*swapped_norms=*/true) < 0.5);
}

ReplicaOptions WithDraftModel(ReplicaOptions options, const std::string& folder) {
  options.draft_model = folder;
  return options;
}

TEST_CASE("every layout answers with a draft model what it answers without, bit for bit") {
  std::vector<v1::Submit> requests = EveryRequest();
  requests.push_back(Request(7, 80, 0));
  const std::string target = "tests/golden/drafts/glm4_moe";
  const struct {
    std::string model, draft;
  } pairs[] = {{"tests/golden/drafts/qwen3_5", target},  // states
               {target, "tests/golden/drafts/deepseek_v3"},
               {target, GoldenFolder("llama").string()},  // another count of ids
               // Windows apart, and fewer positions than the last request has.
               {GoldenFolder("mistral_window").string(), GoldenFolder("opt").string()}};
  for (const auto& pair : pairs) {
    CAPTURE(pair.draft);
    CheckLayouts(pair.model, requests, [&](const ReplicaOptions& options) {
      return WithDraftModel(options, pair.draft);
    });
  }
}

TEST_CASE("all drafts of a model that drafts for itself stand, at temperature 1 as at 0") {
  const std::string folder = "tests/golden/drafts/glm4_moe";
  for (const std::vector<StageLayout>& stages :
       std::vector<std::vector<StageLayout>>{{}, {{1, 1}, {1, 1}}}) {
    ReplicaOptions options;
    options.stages = stages;
    PlannedReplica replica(folder, WithEveryDraft(WithDraftModel(options, folder)));
    for (uint64_t id = 1; id <= 4; ++id) replica.Submit(Request(id, 40, id % 2 == 0 ? 1.0F : 0.0F));
    for (const auto& [key, choice] : replica.WaitAll()) CHECK(choice.tokens.size() == 40);
    const v1::EngineLoad load = replica.load();
    CHECK(load.draft_tokens() > 40);
    CHECK(Accepted(load) == load.draft_tokens());
  }
}

TEST_CASE("a draft model follows prefixes that are there, and what another replica computed") {
  const auto with_model = [](ReplicaOptions options) {
    options.draft_model = kDecoded;
    return options;
  };
  CheckHandOver(with_model);
  const ReplicaOptions options = WithEveryDraft(with_model({}));
  // The second of two like prompts finds the first one's blocks, and the draft model its own there.
  PlannedReplica replica(kDecoded, options);
  for (int time = 0; time < 2; ++time) {
    v1::Submit submit = Request(static_cast<uint64_t>(time + 1), 30, 0);
    *submit.mutable_prompt_token_ids() = Request(9, 1, 0).prompt_token_ids();
    replica.Submit(submit);
    const int32_t cached = replica.WaitAll().at({submit.submission_id(), 0}).cached_tokens;
    CHECK((cached > 0) == (time == 1));
  }
  CHECK(Accepted(replica.load()) == replica.load().draft_tokens());
  CHECK(replica.load().draft_tokens() > 0);
}

TEST_CASE("a draft model whose layers keep states is refused by name, and one that is not there") {
  v1::ConfigureRequest request;
  request.mutable_model()->set_name("plain");
  request.mutable_model()->set_vocabulary(kVocabulary);
  request.mutable_model()->set_max_positions(64);
  request.set_speculation(v1::SPECULATION_DRAFT_MODEL);
  CHECK_THAT(std::string(ReadEngineOptions(request).status().message()),
             Catch::Contains("plain") && Catch::Contains("draft model"));
  v1::DraftModel* const draft = request.mutable_model()->mutable_draft_model();
  *draft->mutable_model() = *ReadModelFolder("tests/golden/drafts/qwen3_5");
  draft->set_folder("/models/small");
  CHECK_THAT(std::string(ReadEngineOptions(request).status().message()),
             Catch::Contains("/models/small") && Catch::Contains("gated delta nets"));
}

TEST_CASE("a model without a head is refused by name, with what it can use") {
  v1::ConfigureRequest request;
  request.mutable_model()->set_name("plain");
  request.set_speculation(v1::SPECULATION_MTP);
  request.mutable_model()->set_vocabulary(kVocabulary);
  request.mutable_model()->set_max_positions(64);
  const auto options = ReadEngineOptions(request);
  CHECK_THAT(std::string(options.status().message()),
             Catch::Contains("plain") && Catch::Contains("--speculate ngram"));
}

}  // namespace
}  // namespace tessera::worker
