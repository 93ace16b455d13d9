// Checkpoints with numbers that are none: whoever meets them is told, nobody else is harmed.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "kernels/cpu/isa.h"
#include "proto/model/model_folder.h"
#include "tests/temporary_folder.h"
#include "tests/worker/engine/engine_harness.h"
#include "tests/worker/model/tiny_model.h"
#include "worker/engine/engine_setup.h"
#include "worker/weights/safetensors.h"

namespace tessera::worker {
namespace {

namespace fs = std::filesystem;
using Catch::Contains;

constexpr int32_t kDamagedToken = 77;
constexpr int64_t kBlockTokens = 8;

// A copy of a golden checkpoint in which `count` numbers of a tensor, from `first` on, are NaN.
class DamagedFolder {
 public:
  DamagedFolder(const std::string& name, const std::string& tensor, int64_t first, int64_t count) {
    for (const auto& entry : fs::directory_iterator(GoldenFolder(name))) {
      if (entry.is_regular_file()) fs::copy_file(entry.path(), path_ / entry.path().filename());
    }
    const fs::path weights = path_ / "model.safetensors";
    fs::permissions(weights, fs::perms::owner_write, fs::perm_options::add);
    int64_t begin = -1, size = 0;
    const auto file = SafetensorsFile::Open(weights);
    REQUIRE(file.ok());
    for (const SafetensorsEntry& entry : (*file)->entries()) {
      if (entry.name != tensor) continue;
      size = entry.dtype == "F16" ? 2 : 4;
      begin = entry.begin;
    }
    REQUIRE(begin >= 0);
    std::fstream out(weights, std::ios::binary | std::ios::in | std::ios::out);
    out.seekp(begin + first * size);
    // All bits are 1, in F16 as in F32.
    const std::string nan(static_cast<size_t>(count * size), '\xff');
    out.write(nan.data(), static_cast<std::streamsize>(nan.size()));
    REQUIRE(out.flush());
  }

  const fs::path& path() const { return path_; }

 private:
  const tests::TemporaryFolder temporary_;
  const fs::path& path_ = temporary_.path();
};

v1::ConfigureRequest ConfigureFor(const fs::path& folder) {
  const auto shape = ReadModelFolder(folder.string());
  REQUIRE(shape.ok());
  v1::ConfigureRequest request;
  request.set_model_folder(folder.string());
  *request.mutable_model() = *shape;
  *request.mutable_share() = WholeShare(*shape);
  request.set_weight_dtype(v1::DATA_TYPE_FLOAT32);
  request.set_block_tokens(kBlockTokens);
  request.set_max_sequences(8);
  request.set_max_batched_tokens(64);
  request.set_max_model_len_tokens(120);
  request.set_prefix_cache(true);
  return request;
}

// An engine without the first step that SetUpEngine runs.
struct RealEngine {
  RealEngine(const fs::path& folder, kernels::Isa isa) {
    auto created = kernels::CreateCpuDevice(
        {.memory_bytes = int64_t{1} << 28, .isa = isa, .cores_shared = true});
    REQUIRE(created.ok());
    device = *std::move(created);
    const v1::ConfigureRequest request = ConfigureFor(folder);
    auto options = ReadEngineOptions(request);
    REQUIRE(options.ok());
    options->limits.total_blocks = 16;  // few, so that blocks change hands
    auto model_options = ReadModelOptions(request);
    REQUIRE(model_options.ok());
    model_options->limits = EngineCore::LimitsOf(*options);
    model = *Model::Load(*model_options, *device, nullptr);
    kv = *device->Allocate(16 * model->KvBlockBytes(kBlockTokens));
    REQUIRE(model->AttachKv(kv.data(), 16, kBlockTokens).ok());
    core = std::make_unique<EngineCore>(
        *options, *LocalExecutor::Create(model_options->limits, SamplingOf(*options), model.get(),
                                         device.get()));
  }

  void RunAll() {
    EngineCore::Events events;
    for (int step = 0; core->Busy(); ++step) {
      REQUIRE(step < 1000);
      core->Step([] { return 0.0; }, &events);
    }
    CHECK(core->load().kv_blocks_used() == 0);
    for (const v1::TokenEvent& event : events) {
      // Choices of one submission end alike; ids above 100 are theirs.
      Told& choice = told[event.submission_id() + 100 * event.choice()];
      REQUIRE(choice.finish == v1::FINISH_REASON_UNSPECIFIED);
      if (event.has_token()) choice.tokens.push_back(event.token_id());
      choice.finish = event.finish();
      choice.error = event.error();
      choice.error_code = event.error_code();
    }
  }

  void Submit(const v1::Submit& submit) {
    EngineCore::Events events;
    core->Submit(submit, 0, &events);
    REQUIRE(events.empty());
  }

  std::unique_ptr<kernels::Device> device;
  std::unique_ptr<Model> model;
  kernels::Buffer kv;
  std::unique_ptr<EngineCore> core;
  std::map<uint64_t, Told> told;
};

v1::Submit Request(uint64_t id, std::vector<int32_t> prompt) {
  v1::Submit submit = MakeSubmit(id, prompt, 6);
  submit.set_ignore_eos(true);
  return submit;
}

std::vector<int32_t> With(std::vector<int32_t> prompt, size_t at, int32_t token) {
  prompt[at] = token;
  return prompt;
}

void CheckRefused(const Told& told, const std::string& position) {
  CHECK(told.finish == v1::FINISH_REASON_ERROR);
  CHECK(told.error_code == static_cast<int32_t>(absl::StatusCode::kInternal));
  CHECK_THAT(told.error, Contains("not finite") && Contains("position " + position + ":") &&
                             Contains("--dtype float32"));
}

TEST_CASE("a token with damaged weights ends the requests that contain it, and no others") {
  const auto width = static_cast<int64_t>(32);
  const std::string name = GENERATE(as<std::string>{}, "llama", "mixtral");
  const DamagedFolder folder(name, "model.embed_tokens.weight", kDamagedToken * width, width);
  for (const kernels::Isa isa : kernels::SupportedIsas(kernels::DetectCpuFeatures())) {
    INFO(name << " on " << kernels::Name(isa));
    RealEngine clean(GoldenFolder(name), isa), damaged(folder.path(), isa);
    // Under the vocabulary's upper end, where the damaged token stands.
    const std::vector<int32_t> a = Prompt(21, 1, 70), b = Prompt(13, 2, 70), c = Prompt(30, 3, 70);
    for (RealEngine* engine : {&clean, &damaged}) {
      engine->Submit(Request(1, a));
      engine->Submit(Request(2, With(b, 12, kDamagedToken)));
      v1::Submit scored = Request(3, With(c, 9, kDamagedToken));
      scored.set_prompt_logprobs(2);
      scored.set_max_tokens(0);
      engine->Submit(scored);
      v1::Submit several = Request(4, With(a, 20, kDamagedToken));
      several.set_choice_count(3);
      several.set_top_logprobs(3);
      if (engine == &damaged) engine->Submit(several);
      engine->Submit(Request(5, c));
      engine->RunAll();
      // Blocks that held NaN are somebody else's now.
      for (uint64_t id = 10; id < 18; ++id) {
        engine->Submit(Request(id, Prompt(9 + id, static_cast<uint32_t>(id), 70)));
      }
      engine->RunAll();
    }
    CheckRefused(damaged.told[2], "13");
    CHECK_THAT(damaged.told[3].error, Contains("not finite"));
    for (const uint64_t id : {4, 104, 204}) {
      CHECK(damaged.told[id].finish == v1::FINISH_REASON_ERROR);
      CHECK(damaged.told[id].tokens.empty());
    }
    CHECK(clean.told[2].finish == v1::FINISH_REASON_LENGTH);
    CHECK(damaged.told[2].tokens.empty());
    for (const uint64_t id : {1, 5, 10, 11, 12, 13, 14, 15, 16, 17}) {
      CAPTURE(id);
      CHECK(clean.told[id].tokens.size() == 6);
      CHECK(damaged.told[id].tokens == clean.told[id].tokens);
      CHECK(damaged.told[id].finish == v1::FINISH_REASON_LENGTH);
    }
  }
}

TEST_CASE("a checkpoint that is damaged for every prompt is not served at all") {
  const DamagedFolder folder("llama", "lm_head.weight", 5 * 32 + 3, 1);
  SetupOptions setup;
  setup.device = &TestDevice();
  setup.load_model = Model::Load;
  setup.fingerprint = [](const fs::path&) -> absl::StatusOr<std::string> { return ""; };
  setup.clock = [] { return 0.0; };
  setup.kv_cache_bytes = 1 << 20;
  SetupCall call;
  call.progress = [](const std::string&, int64_t, int64_t) {};
  const auto engine = SetUpEngine(ConfigureFor(folder.path()), setup, call);
  REQUIRE_FALSE(engine.ok());
  CHECK_THAT(std::string(engine.status().message()),
             Contains("first step failed") && Contains("not finite"));
}

}  // namespace
}  // namespace tessera::worker
