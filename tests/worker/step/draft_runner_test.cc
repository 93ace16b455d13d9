// The head for further tokens of a model proposes what its oracle proposes (tests/golden/drafts).
#include "worker/step/draft_runner.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/cpu/device/cpu_device.h"
#include "kvcache/block_pool.h"
#include "kvcache/seat_pool.h"
#include "proto/layers/kv_sizes.h"
#include "proto/model/model_folder.h"
#include "tests/temporary_folder.h"
#include "tests/worker/model/tiny_model.h"
#include "worker/step/local_executor.h"

namespace tessera::worker {
namespace {

constexpr int64_t kBlock = 8, kBlocks = 16, kSeats = 2;
constexpr int32_t kDrafts = 3;

StepLimits Limits() {
  return {.max_tokens = 64, .max_sequences = 4, .max_logit_rows = 16, .max_blocks_per_sequence = 8};
}

struct Expected {
  std::vector<int32_t> prompt, tokens;
  std::vector<std::vector<int32_t>> drafts;  // behind each of tokens
};

std::string FolderOf(const std::string& name) { return "tests/golden/drafts/" + name; }

Expected ReadExpected(const std::string& name) {
  const auto json = nlohmann::json::parse(std::ifstream(FolderOf(name) + "/expected.json"));
  return {json.at("prompt"), json.at("tokens"), json.at("drafts")};
}

ModelOptions OptionsOf(const std::string& folder) {
  const auto model = ReadModelFolder(folder);
  REQUIRE(model.ok());
  ModelOptions options;
  options.folder = folder;
  options.model = *model;
  REQUIRE(options.model.has_draft_head());
  options.model.mutable_draft_head()->set_used(true);
  options.share = WholeShare(options.model);
  options.weight_dtype = options.kv_dtype = kernels::DType::kF32;
  options.limits = Limits();
  return options;
}

// One worker with a whole model, and one sequence on it.
class Worker {
 public:
  Worker(const std::string& name, kernels::Isa isa) {
    kernels::CpuDeviceOptions device;
    device.isa = isa;
    device.cores_shared = true;
    device.memory_bytes = int64_t{1} << 28;
    device_ = *kernels::CreateCpuDevice(device);
    const ModelOptions options = OptionsOf(FolderOf(name));
    auto model = Model::Load(options, *device_, [](int64_t, int64_t) {});
    REQUIRE(model.status().message() == "");
    model_ = *std::move(model);
    const KvBlockBytes bytes =
        BlockBytesOf(options.model, options.share, sizeof(float), kBlock, false);
    CHECK(bytes.common == model_->KvBlockBytes(kBlock));
    const KvBlocks kv(kBlocks, 0, bytes.seat > 0 ? kSeats : 0);
    memory_ = *device_->Allocate(BytesOf(kv, bytes));
    REQUIRE(model_->AttachKv(memory_.data(), kv, kBlock).ok());
    auto executor =
        LocalExecutor::Create(Limits(), {16, options.model.vocabulary(), 64}, model_.get(),
                              device_.get(), nullptr, nullptr, 0, nullptr, kBlock);
    REQUIRE(executor.ok());
    executor_ = *std::move(executor);
    seats_ = std::make_unique<kvcache::SeatPool>(static_cast<int32_t>(kv.seats));
    seat_ = kvcache::Seat(kv.seats > 0 ? seats_.get() : nullptr);
    seat_.Take();
  }

  // The next `rows` rows of `tokens`, and `drafts` behind them; draws where these are all.
  std::vector<SampleResult> Run(const std::vector<int32_t>& tokens, int64_t rows,
                                const std::vector<int32_t>& drafts = {}) {
    arrays_.Begin();
    const int64_t all = rows + std::ssize(drafts);
    blocks_.Grow(first_ + all + kDrafts);
    arrays_.AddSequence({.tokens = tokens,
                         .prompt_tokens = std::ssize(tokens),
                         .first = first_,
                         .rows = all,
                         .blocks = &blocks_,
                         .drafts = drafts,
                         .seat = seat_.number(),
                         .seat_owner = seat_.owner()});
    std::vector<SampleRequest> requests;
    if (first_ + rows == std::ssize(tokens)) requests.resize(1 + drafts.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i].params = &greedy_;
      requests[i].position = std::ssize(tokens) + static_cast<int64_t>(i);
      arrays_.AddLogitRow(static_cast<int32_t>(rows - 1 + static_cast<int64_t>(i)));
    }
    arrays_.Seal();
    StepWork work{&arrays_, requests, {}};
    work.draft_tokens = kDrafts;
    REQUIRE(executor_->Begin(work).ok());
    StepOutcome outcome;
    REQUIRE(executor_->Take(&outcome).message() == "");
    first_ += rows;
    return outcome.samples;
  }
  // Drafts of the last step stand as well; without states their rows need not come again.
  void Keep(int64_t drafts) { first_ += seat_.number() < 0 ? drafts : 0; }
  int64_t first() const { return first_; }

 private:
  std::unique_ptr<kernels::Device> device_;
  std::unique_ptr<Model> model_;
  kernels::Buffer memory_;
  std::unique_ptr<StepExecutor> executor_;
  kvcache::BlockPool pool_{kBlocks, kBlock};
  kvcache::BlockTable blocks_{&pool_};
  std::unique_ptr<kvcache::SeatPool> seats_;
  kvcache::Seat seat_{nullptr};
  StepArrays arrays_{Limits()};
  v1::SamplingParams greedy_ = [] {
    v1::SamplingParams params;
    params.set_top_p(1);
    params.set_repetition_penalty(1);
    return params;
  }();
  int64_t first_ = 0;
};

TEST_CASE("a head proposes what its oracle does, however its prompt is cut") {
  for (const char* name : {"qwen3_5", "deepseek_v3", "glm4_moe"}) {
    const Expected expected = ReadExpected(name);
    for (const int64_t chunk : {20, 7, 1}) {
      CAPTURE(name, chunk);
      Worker worker(name, kernels::Isa::kReference);
      std::vector<int32_t> tokens = expected.prompt;
      std::vector<SampleResult> samples;
      for (int64_t done = 0; done < std::ssize(tokens); done += chunk) {
        samples = worker.Run(tokens, std::min(chunk, std::ssize(tokens) - done));
      }
      for (size_t i = 0; i < expected.tokens.size(); ++i) {
        CAPTURE(i);
        REQUIRE(samples.size() == 1);
        REQUIRE(samples[0].token_id == expected.tokens[i]);
        CHECK(samples[0].drafts == expected.drafts[i]);
        tokens.push_back(samples[0].token_id);
        samples = worker.Run(tokens, 1);
      }
    }
  }
}

TEST_CASE("behind drafts that stand or not, it proposes behind the last token that is drawn") {
  for (const char* name : {"qwen3_5", "deepseek_v3", "glm4_moe"}) {
    const Expected expected = ReadExpected(name);
    for (const size_t right : {0, 1, 2}) {
      CAPTURE(name, right);
      Worker worker(name, kernels::Isa::kReference);
      std::vector<int32_t> tokens = expected.prompt;
      worker.Run(tokens, std::ssize(tokens));
      size_t known = 1;
      tokens.push_back(expected.tokens[0]);
      while (known + 3 < expected.tokens.size()) {
        std::vector<int32_t> drafts = {expected.tokens[known], expected.tokens[known + 1]};
        for (size_t i = right; i < drafts.size(); ++i) drafts[i] = (drafts[i] + 1) % 48;
        const auto samples = worker.Run(tokens, std::ssize(tokens) - worker.first(), drafts);
        REQUIRE(samples.size() == 3);
        for (size_t i = 0; i < 3; ++i) {
          if (i <= right) CHECK(samples[i].token_id == expected.tokens[known + i]);
          if (i == right) {
            CHECK(samples[i].drafts == expected.drafts[known + i]);
          } else {
            CHECK(samples[i].drafts.empty());
          }
        }
        worker.Keep(static_cast<int64_t>(right));
        for (size_t i = 0; i <= right; ++i) tokens.push_back(expected.tokens[known + i]);
        known += right + 1;
      }
    }
  }
}

TEST_CASE("a tensor of a head that is missing is named") {
  const tests::TemporaryFolder copy;
  const std::string from = FolderOf("qwen3_5");
  std::filesystem::copy(from, copy.path(), std::filesystem::copy_options::recursive);
  // The same length, so that the header stays valid.
  const std::filesystem::path file = copy.path() / "model.safetensors";
  std::string bytes;
  {
    std::ifstream in(file, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  const size_t at = bytes.find("mtp.pre_fc_norm_hidden.weight");
  REQUIRE(at != std::string::npos);
  bytes.replace(at, 3, "xxx");
  std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  std::ofstream(file, std::ios::binary) << bytes;
  kernels::CpuDeviceOptions device;
  device.cores_shared = true;
  device.memory_bytes = int64_t{1} << 28;
  const auto cpu = *kernels::CreateCpuDevice(device);
  const auto model = Model::Load(OptionsOf(copy.path().string()), *cpu, [](int64_t, int64_t) {});
  CHECK_THAT(std::string(model.status().message()),
             Catch::Contains("mtp.pre_fc_norm_hidden.weight") && Catch::Contains("head"));
}

}  // namespace
}  // namespace tessera::worker
