// The planner's charges for memory against what workers allocate: never less, for whatever part of
// a model. Prints how much more.
#include "scheduler/cost/allocations.h"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cstdio>

#include "kernels/cpu/device/cpu_device.h"
#include "kernels/kv_rows.h"
#include "proto/activations.h"
#include "proto/layers/kv_sizes.h"
#include "proto/layers/layers.h"
#include "proto/layers/state_room.h"
#include "proto/model/model_folder.h"
#include "scheduler/cost/cost_model.h"
#include "scheduler/shares.h"
#include "tests/worker/model/tiny_model.h"
#include "third_party/linux/cpu_share.h"
#include "worker/model/draft_head.h"
#include "worker/model/model_buffers.h"
#include "worker/model/model_dtypes.h"
#include "worker/step/sampler.h"
#include "worker/step/step_inputs.h"
#include "worker/weights/weights.h"

namespace tessera::worker {
namespace {

using kernels::DType;

constexpr int64_t kBlockTokens = 16;

struct Limits {
  int64_t rows = 0;
  int64_t sequences = 0;
};

// Ratio of charge and allocation, over ranks.
struct Ratios {
  double least = 1e9, largest = 0;
};

std::unique_ptr<kernels::Device> Device(kernels::Isa isa) {
  std::vector<int> cores = AffinityCores();
  if (cores.size() > 2) cores.resize(2);
  auto device = kernels::CreateCpuDevice(
      {.cores = cores, .memory_bytes = int64_t{1} << 30, .isa = isa, .cores_shared = true});
  REQUIRE(device.ok());
  return *std::move(device);
}

int64_t Elements(const v1::Range& range) { return range.end() - range.begin(); }

// What the rank holds of a kind that attends.
int64_t QueryHeads(const v1::WorkerShare& share) {
  int64_t heads = 0;
  for (const v1::LayerShare& kind : share.kinds()) {
    heads = std::max(heads, Elements(kind.query_heads()));
  }
  return heads;
}

// What a worker with this share takes of its device besides the KV pool.
int64_t AllocatedBytes(const ModelOptions& options, kernels::Device& device) {
  auto weights = LoadWeights(options, device, nullptr);
  REQUIRE(weights.ok());
  auto buffers = AllocateBuffers(options, **weights, device);
  REQUIRE(buffers.ok());
  const StepLimits& limits = options.limits;
  const auto table =
      static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(limits.max_blocks_per_sequence)));
  const kernels::AttentionShape shape = {.tokens = limits.max_tokens,
                                         .sequences = limits.max_sequences,
                                         .heads = QueryHeads(options.share),
                                         .kv_heads = Elements(KvHeads(options.share)),
                                         .head_dim = KvHeadDim(options.model),
                                         .max_context_tokens = table * kBlockTokens};
  auto upload = StepUpload::Create(limits, device);
  REQUIRE(upload.ok());
  int64_t bytes = (*weights)->memory.size_bytes() + buffers->bytes +
                  device.ops().AttentionWorkspaceBytes(shape) + (*upload)->device_bytes();
  if (!options.share.holds_head()) return bytes;
  auto sampler = Sampler::Create(
      {limits.max_logit_rows, options.model.vocabulary(), options.model.max_positions()}, device);
  REQUIRE(sampler.ok());
  bytes += (*sampler)->device_bytes();
  if (HoldsDraftModel(options.model, options.share)) {
    ModelOptions draft = options;
    draft.model = options.model.draft_model().model();
    draft.folder = options.model.draft_model().folder();
    draft.share = WholeModelShare(draft.model);
    draft.limits = DraftModelLimits(limits);
    bytes += AllocatedBytes(draft, device);
  }
  if (!HoldsDraftHead(options.model, options.share)) return bytes;
  // It has a step and a sampler of its own.
  auto head = DraftHead::Load(options, **weights, device, nullptr);
  REQUIRE(head.status().message() == "");
  return bytes + (*head)->weight_bytes() + (*head)->activation_bytes() + (*upload)->device_bytes() +
         (*sampler)->device_bytes();
}

class Comparison {
 public:
  Comparison(const std::filesystem::path& folder, kernels::Isa isa) : device_(Device(isa)) {
    const auto model = ReadModelFolder(folder.string());
    REQUIRE(model.ok());
    options_.folder = folder;
    options_.model = *model;
    if (folder.parent_path().filename() == "drafts") {
      options_.model.mutable_draft_head()->set_used(true);
    }
  }

  // Has the model in that folder draft.
  void AddDraftModel(const std::filesystem::path& folder) {
    const auto model = ReadModelFolder(folder.string());
    REQUIRE(model.ok());
    *options_.model.mutable_draft_model()->mutable_model() = *model;
    options_.model.mutable_draft_model()->set_folder(folder.string());
  }

  // Stages of every width that hold all layers, the first ones, those in the middle and the last.
  void Run(v1::DataType weights, const Limits& limits, Ratios* ratios,
           v1::DataType kv = v1::DATA_TYPE_UNSPECIFIED) {
    if (KeepsInt4(options_.model) && weights == v1::DATA_TYPE_INT8) return;  // refused
    const auto types = ResolveDTypes(options_.model, weights, kv);
    REQUIRE(types.ok());
    options_.weight_dtype = types->weight_dtype;
    options_.kv_dtype = types->kv_dtype;
    options_.product_dtype = types->product_dtype;
    options_.limits = {.max_tokens = limits.rows,
                       .max_sequences = limits.sequences,
                       .max_logit_rows = limits.sequences,
                       .max_blocks_per_sequence =
                           (options_.model.max_positions() + kBlockTokens - 1) / kBlockTokens};
    const auto shape = scheduler::MakeModelShape(options_.model, weights, kv);
    REQUIRE(shape.ok());
    const int layers = static_cast<int>(LayerCount(options_.model));
    for (const auto& [first, end] :
         {std::pair(0, layers), {0, layers - 1}, {1, layers - 1}, {layers - 1, layers}}) {
      if (first >= end || (shape->one_stage && end - first < layers)) continue;
      for (int width = 1; width <= MaxWidth(*shape); ++width)
        CompareStage(*shape, weights, {first, end}, width, ratios);
    }
  }

  int seats_compared() const { return seats_compared_; }
  int codes_compared() const { return codes_compared_; }

 private:
  void CompareStage(const scheduler::ModelShape& shape, v1::DataType weights,
                    std::pair<int, int> layers, int width, Ratios* ratios) {
    scheduler::DeviceSpec device;
    device.memory_bytes = 0x1p30;
    scheduler::StageSpec stage;
    stage.ranks.assign(static_cast<size_t>(width), &device);
    stage.first_layer = layers.first;
    stage.layers = layers.second - layers.first;
    stage.holds_embedding = layers.first == 0;
    stage.holds_head = layers.second == shape.layers;
    scheduler::MemoryOptions memory;
    memory.runtime_reserve_bytes = 0;
    memory.max_step_tokens = options_.limits.max_tokens;
    memory.max_logit_rows = options_.limits.max_logit_rows;
    const bool pipeline = stage.layers < shape.layers;
    const scheduler::RankMemory charged =
        scheduler::MemoryOfRank(shape, stage, 0, memory, pipeline);
    // Beside all that, states of prompts have what workers give them.
    const auto memory_bytes = static_cast<int64_t>(device.memory_bytes);
    const auto cache_bytes =
        shape.keeps_states() ? static_cast<double>(UsualStateCacheBytes(memory_bytes)) : 0;
    const double charge = charged.weight_bytes + charged.activation_bytes +
                          charged.communication_bytes + charged.reserve_bytes - cache_bytes;
    for (const v1::WorkerShare& share :
         scheduler::StageShares(options_.model, layers.first, layers.second, width, weights)) {
      INFO("layers " << layers.first << " to " << layers.second << ", width " << width << ", "
                     << share.ShortDebugString());
      options_.share = share;
      const auto allocated = static_cast<double>(AllocatedBytes(options_, *device_));
      CHECK(charge >= allocated);
      CompareSeats(shape, share, charged);
      ratios->least = std::min(ratios->least, charge / allocated);
      ratios->largest = std::max(ratios->largest, charge / allocated);
    }
  }

  // A worker that gets what was planned for KV and states has seats for as many sequences.
  void CompareSeats(const scheduler::ModelShape& shape, const v1::WorkerShare& share,
                    const scheduler::RankMemory& charged) {
    const KvElement element = {static_cast<int64_t>(shape.kv_bytes_per_element),
                               shape.kv_scale_bytes};
    const KvBlockBytes block =
        BlockBytesOf(options_.model, share, element, kBlockTokens, /*windows_apart=*/false);
    if (kernels::HasKvScales(options_.kv_dtype)) {
      const KvBlockBytes held = BlockBytesOf(options_.model, share, KvElementOf(options_.kv_dtype),
                                             kBlockTokens, /*windows_apart=*/false);
      CHECK(held.common == block.common);
      const double token_bytes =
          charged.kv_bytes_per_token +
          charged.window_block_bytes / static_cast<double>(charged.block_tokens);
      CHECK(token_bytes * kBlockTokens >= static_cast<double>(held.common));
      ++codes_compared_;
    }
    CHECK(charged.state_bytes >= static_cast<double>(block.seat));
    if (block.seat == 0 || block.common == 0) return;
    ++seats_compared_;
    const double bytes = charged.kv_tokens() * charged.kv_bytes_per_token +
                         static_cast<double>(charged.seats) * charged.state_bytes;
    CHECK(bytes <= charged.free_bytes());
    const KvLimits limits = {kBlockTokens, 0, options_.model.max_positions(), charged.seats,
                             options_.limits.max_tokens};
    const KvBlocks cut = CutKv(static_cast<int64_t>(bytes), block, limits);
    CHECK(charged.seats == options_.limits.max_logit_rows);  // a gigabyte is enough for all
    CHECK(cut.seats == charged.seats);
    CHECK(static_cast<double>(cut.common * kBlockTokens) >= charged.kv_tokens() - kBlockTokens);
  }

  std::unique_ptr<kernels::Device> device_;
  ModelOptions options_;
  int seats_compared_ = 0;
  int codes_compared_ = 0;  // shares whose KV has 8 bits
};

}  // namespace

TEST_CASE("a draft model is charged where a worker holds it, on the rank that draws alone") {
  for (const char* name : {"llama", "qwen3_5"}) {
    for (const v1::DataType weights : {v1::DATA_TYPE_FLOAT32, v1::DATA_TYPE_INT8}) {
      for (const Limits& limits : {Limits{16, 4}, Limits{512, 64}}) {
        INFO(name << ", " << limits.rows << " rows, " << v1::DataType_Name(weights));
        Ratios ratios;
        Comparison comparison(GoldenFolder(name), *kernels::ParseIsa("auto"));
        comparison.AddDraftModel(GoldenFolder("qwen3"));
        comparison.Run(weights, limits, &ratios);
        CHECK(ratios.largest > 0);
      }
    }
  }
}

TEST_CASE("a charge is never less than what a worker allocates, whatever its part of the model") {
  std::vector<std::filesystem::path> folders = {"deploy/demo_model/tessera-demo"};
  for (const std::string& name : GoldenModels()) folders.push_back(GoldenFolder(name));
  for (const char* name : {"qwen3_5", "deepseek_v3", "glm4_moe"}) {
    folders.push_back(std::filesystem::path("tests/golden/drafts") / name);
  }
  int seats_compared = 0;
  for (const std::filesystem::path& folder : folders) {
    for (const Limits& limits : {Limits{16, 4}, Limits{512, 64}}) {
      Ratios ratios;
      for (const v1::DataType weights :
           {v1::DATA_TYPE_FLOAT32, v1::DATA_TYPE_BFLOAT16, v1::DATA_TYPE_INT8}) {
        // Large steps in one type: buffers of activations depend on it little.
        if (limits.rows > 16 && weights != v1::DATA_TYPE_BFLOAT16) continue;
        for (const char* isa : {"reference", "auto"}) {
          INFO(folder << ", " << limits.rows << " rows, " << v1::DataType_Name(weights) << ", "
                      << isa << " kernels");
          Comparison comparison(folder, *kernels::ParseIsa(isa));
          comparison.Run(weights, limits, &ratios);
          seats_compared += comparison.seats_compared();
        }
      }
      std::printf("%-24s steps of %3d rows: charged / allocated = %.2f to %.2f\n",
                  folder.filename().c_str(), static_cast<int>(limits.rows), ratios.least,
                  ratios.largest);
    }
  }
  CHECK(seats_compared > 0);
}

TEST_CASE("KV in 8 bits is charged with its scales, as workers cut it") {
  int compared = 0;
  for (const char* name : {"llama", "gemma3", "deepseek_v3", "qwen3_5"}) {
    for (const v1::DataType kv : {v1::DATA_TYPE_INT8, v1::DATA_TYPE_FP8}) {
      INFO(name << ", " << v1::DataType_Name(kv));
      Ratios ratios;
      Comparison comparison(GoldenFolder(name), *kernels::ParseIsa("auto"));
      comparison.Run(v1::DATA_TYPE_FLOAT32, {16, 4}, &ratios, kv);
      compared += comparison.codes_compared();
    }
  }
  CHECK(compared > 8);
}

TEST_CASE("planner and workers speak of the same elements") {
  CHECK(SizeInBytes(DType::kF32) == kActivationElementBytes);
  CHECK(ModelOptions().int8_group_size == kInt8GroupInputs);
}

}  // namespace tessera::worker
