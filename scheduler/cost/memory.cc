#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/layers/kv_sizes.h"
#include "proto/layers/state_room.h"
#include "scheduler/cost/allocations.h"
#include "scheduler/cost/cost_model.h"
#include "scheduler/cost/layer_sums.h"

namespace tessera::scheduler {
namespace {

constexpr double kGib = 1073741824.0;

// Whether a stage has the head for further tokens.
bool HasDraftHead(const ModelShape& model, const StageSpec& stage) {
  return model.draft_kind >= 0 && stage.holds_head;
}

double DraftHeadWeightBytes(const ModelShape& model, const StageSpec& stage,
                            const RankShare& share) {
  const auto kind = static_cast<size_t>(model.draft_kind);
  const LayerShape& layer = model.kinds[kind];
  const bool own_table = !stage.holds_embedding && !model.tied_embeddings;
  const double elements = RouterParameters(layer) +
                          2.0 * static_cast<double>(model.hidden * model.hidden) +
                          (own_table ? VocabularyParameters(model, share) : 0);
  return MatrixParameters(layer, share.kinds[kind]) * MatrixElementBytes(model) +
         elements * model.weight_bytes_per_element;
}

// Peak of a layer's temporaries where a runtime reserve holds workspaces, arrays of a step and
// sampling: residual and normalised rows whole, the rank's part of q, k, v and attention output,
// the rank's part of gate, up and their product; logits in fp32 on the last stage.
double ReservedActivationBytes(const ModelShape& model, const StageSpec& stage,
                               const RankShare& share, const MemoryOptions& options) {
  int64_t widest = 0;
  for (size_t i = 0; i < model.kinds.size(); ++i) {
    const LayerShape& layer = model.kinds[i];
    const LayerPart& part = share.kinds[i];
    const int64_t attention = (2 * part.query_heads + 2 * part.kv_heads) * layer.head_dim +
                              part.key_groups * (layer.group_columns + layer.group_values);
    const int64_t columns =
        std::max(part.ffn_columns, layer.experts_per_token * layer.expert_width);
    widest = std::max({widest, attention, layer.ffn_matrices * columns});
  }
  const auto per_row = static_cast<double>(3 * model.hidden + widest);
  double bytes =
      static_cast<double>(options.max_step_tokens) * per_row * model.wire_bytes_per_element;
  if (stage.holds_head)
    bytes += static_cast<double>(options.max_logit_rows * share.vocabulary_rows) * 4.0;
  // A head for further tokens has all of them once more, and both of its inputs.
  if (HasDraftHead(model, stage)) {
    bytes = 2 * bytes + static_cast<double>(options.max_step_tokens * 2 * model.hidden) *
                            model.wire_bytes_per_element;
  }
  return bytes;
}

double StageKvBytesPerToken(const ModelShape& model, const StageSpec& stage,
                            const RankShare& share) {
  double bytes = SumOverLayers(model, stage.first_layer, stage.layers, [&](int layer) {
    return EndlessKvBytesPerTokenLayer(model, share, layer);
  });
  if (HasDraftHead(model, stage)) {
    const auto kind = static_cast<size_t>(model.draft_kind);
    bytes += KvTokenBytes(model, model.kinds[kind], share.kinds[kind]);
  }
  return bytes;
}

// As workers cut their memory, whose sizes are whole numbers of bytes.
void CutWindows(const ModelShape& model, const StageSpec& stage, const RankShare& share,
                const MemoryOptions& options, RankMemory* memory) {
  const double token_bytes = SumOverLayers(model, stage.first_layer, stage.layers, [&](int layer) {
    return WindowKvBytesPerTokenLayer(model, share, layer);
  });
  memory->block_tokens = options.block_tokens;
  memory->window_block_bytes = token_bytes * static_cast<double>(options.block_tokens);
  if (memory->window_block_bytes == 0 || memory->free_bytes() <= 0) return;
  const auto bytes = [&](double of_token) {
    return static_cast<int64_t>(of_token) * options.block_tokens;
  };
  const KvBlocks cut =
      CutKv(static_cast<int64_t>(memory->free_bytes()),
            {bytes(memory->kv_bytes_per_token), bytes(token_bytes), 0},
            {options.block_tokens, model.longest_window(),
             options.context_tokens > 0 ? options.context_tokens : model.max_positions,
             options.max_logit_rows, options.max_step_tokens});
  memory->window_blocks = cut.window;
  memory->other_blocks = cut.common;
}

double StageStateBytes(const ModelShape& model, const StageSpec& stage, const RankShare& share) {
  return SumOverLayers(model, stage.first_layer, stage.layers,
                       [&](int layer) { return StateBytesPerLayer(model, share, layer); });
}

// Whole tokens of KV in what seats leave.
double TokensBeside(double free_bytes, double kv_bytes_per_token, double seat_bytes) {
  const double bytes = free_bytes - seat_bytes;
  if (free_bytes <= 0 || bytes < 0) return 0;
  if (kv_bytes_per_token <= 0) return std::numeric_limits<double>::infinity();
  return std::floor(bytes / kv_bytes_per_token);
}

std::string RankName(const StageSpec& stage, size_t rank) {
  const std::string& kind = stage.ranks[rank]->kind;
  if (rank < stage.rank_names.size()) return absl::StrCat(stage.rank_names[rank], " (", kind, ")");
  return kind;
}

}  // namespace

double RankMemory::kv_tokens() const {
  if (window_block_bytes > 0) return static_cast<double>(other_blocks * block_tokens);
  return TokensBeside(free_bytes(), kv_bytes_per_token, static_cast<double>(seats) * state_bytes);
}

// So that the longest sequence has room where it can have any.
SeatedKv CutSeats(const ModelShape& model, const MemoryOptions& options, double free_bytes,
                  double kv_bytes_per_token, double state_bytes) {
  SeatedKv cut;
  if (state_bytes > 0) {
    const double free = std::max(0.0, free_bytes);
    const double longest = static_cast<double>(model.max_positions) * kv_bytes_per_token;
    double most = free / (state_bytes + TypicalTokens(model) * kv_bytes_per_token);
    if (state_bytes + longest <= free) most = std::min(most, (free - longest) / state_bytes);
    cut.seats = static_cast<int64_t>(
        std::clamp(std::floor(most), 1.0, static_cast<double>(options.max_logit_rows)));
  }
  cut.tokens =
      TokensBeside(free_bytes, kv_bytes_per_token, static_cast<double>(cut.seats) * state_bytes);
  return cut;
}

RankShare ShareOfRank(const ModelShape& model, const StageSpec& stage, size_t rank) {
  return stage.shares.empty() ? FullestShare(model, stage.width()) : stage.shares[rank];
}

double StageWeightBytes(const ModelShape& model, const StageSpec& stage) {
  return StageWeightBytes(model, stage, FullestShare(model, stage.width()));
}

double StageWeightBytes(const ModelShape& model, const StageSpec& stage, const RankShare& share) {
  double bytes = SumOverLayers(model, stage.first_layer, stage.layers,
                               [&](int layer) { return LayerWeightBytes(model, share, layer); });
  if (HasDraftHead(model, stage)) bytes += DraftHeadWeightBytes(model, stage, share);
  const bool one_table = model.tied_embeddings && stage.holds_embedding && stage.holds_head;
  const int tables = one_table ? 1 : (stage.holds_embedding ? 1 : 0) + (stage.holds_head ? 1 : 0);
  double parameters = tables * VocabularyParameters(model, share);
  if (stage.holds_embedding)
    parameters += static_cast<double>(model.learned_positions * model.hidden +
                                      share.vocabulary_rows * model.per_layer_columns +
                                      model.per_layer_parameters);
  return bytes + parameters * model.weight_bytes_per_element;
}

namespace {

// Adds a draft model, whole on one rank, to what that rank holds anyway.
void AddDraftModel(const ModelShape& draft, const DeviceSpec* rank, MemoryOptions options,
                   RankMemory* memory) {
  StageSpec whole;
  whole.ranks = {rank};
  whole.layers = draft.layers;
  whole.holds_embedding = whole.holds_head = true;
  options.max_step_tokens += options.max_logit_rows;  // behind each sequence a drawn token
  const RankMemory own = MemoryOfRank(draft, whole, 0, options, /*pipeline=*/false);
  memory->weight_bytes += own.weight_bytes;
  memory->activation_bytes += own.activation_bytes;
  memory->kv_bytes_per_token += own.kv_bytes_per_token;
  // A runtime is there once.
  if (options.runtime_reserve_bytes == 0) memory->reserve_bytes += own.reserve_bytes;
}

}  // namespace

RankMemory MemoryOfRank(const ModelShape& model, const StageSpec& stage, size_t rank,
                        const MemoryOptions& options, bool pipeline) {
  const RankShare share = ShareOfRank(model, stage, rank);
  RankMemory memory;
  memory.weight_bytes = StageWeightBytes(model, stage, share);
  memory.reserve_bytes = options.runtime_reserve_bytes;
  if (options.runtime_reserve_bytes > 0) {
    const double rows_bytes =
        static_cast<double>(options.max_step_tokens * model.hidden) * model.wire_bytes_per_element;
    memory.activation_bytes = ReservedActivationBytes(model, stage, share, options);
    // All-reduce: one send and one receive buffer; hops: one each way.
    memory.communication_bytes =
        (stage.width() > 1 ? 2 : 0) * rows_bytes + (pipeline ? 2 : 0) * rows_bytes;
  } else {  // CPU workers: everything that they allocate
    memory.activation_bytes = ActivationBytes(model, stage, share, options);
    memory.communication_bytes = CommunicationBytes(model, stage, options, pipeline);
    memory.reserve_bytes = LeftOutBytes(model, stage, share, options);
    if (model.keeps_states()) {
      const auto device_bytes = static_cast<int64_t>(stage.ranks[rank]->memory_bytes);
      memory.reserve_bytes += static_cast<double>(UsualStateCacheBytes(device_bytes));
    }
  }
  memory.budget_bytes = stage.ranks[rank]->memory_bytes * options.utilisation;
  memory.kv_bytes_per_token = StageKvBytesPerToken(model, stage, share);
  if (model.draft_model != nullptr && stage.holds_head && rank == 0) {
    AddDraftModel(*model.draft_model, stage.ranks[rank], options, &memory);
  }
  memory.state_bytes = StageStateBytes(model, stage, share);
  memory.seats =
      CutSeats(model, options, memory.free_bytes(), memory.kv_bytes_per_token, memory.state_bytes)
          .seats;
  if (!model.windows.empty()) CutWindows(model, stage, share, options, &memory);
  return memory;
}

double TypicalTokens(const ModelShape& model) {
  const auto longest = static_cast<double>(model.max_positions);
  const int64_t typical =
      model.windows.empty() ? kTypicalTokens : kTypicalWindows * model.longest_window();
  return longest > 0 ? std::min(longest, static_cast<double>(typical))
                     : static_cast<double>(typical);
}

KvCapacity KvCapacityOf(const ModelShape& model, std::span<const StageSpec> stages,
                        const MemoryOptions& options) {
  KvCapacity least;
  const auto like_before = [&](size_t i) {
    const StageSpec &a = stages[i - 1], &b = stages[i];
    return model.uniform() && a.layers == b.layers && a.holds_embedding == b.holds_embedding &&
           a.holds_head == b.holds_head && a.ranks == b.ranks && a.shares.empty() &&
           b.shares.empty();
  };
  for (size_t i = 0; i < stages.size(); ++i) {
    if (i > 0 && like_before(i)) continue;
    for (size_t rank = 0; rank < stages[i].ranks.size(); ++rank) {
      const bool like = rank > 0 && stages[i].ranks[rank] == stages[i].ranks[rank - 1];
      if (like && stages[i].shares.empty()) continue;
      const RankMemory memory = MemoryOfRank(model, stages[i], rank, options, stages.size() > 1);
      if (memory.state_bytes > 0)
        least.seats = std::min(least.seats, static_cast<double>(memory.seats));
      const double tokens = memory.kv_tokens();
      if (tokens >= least.tokens) continue;
      least.tokens = tokens;
      least.limiting_stage = static_cast<int>(i);
    }
  }
  return least;
}

absl::Status CheckMemory(const ModelShape& model, std::span<const StageSpec> stages,
                         const MemoryOptions& options, double kv_tokens) {
  std::string missing;
  for (size_t i = 0; i < stages.size(); ++i) {
    for (size_t rank = 0; rank < stages[i].ranks.size(); ++rank) {
      const RankMemory m = MemoryOfRank(model, stages[i], rank, options, stages.size() > 1);
      const auto windows =
          static_cast<double>(WindowBlocksOf(model.longest_window(), m.block_tokens));
      const double kv = m.KeptBytes(kv_tokens, 1, m.window_block_bytes > 0 ? windows : 0);
      const double shortfall = kv - m.free_bytes();
      if (shortfall <= 0) continue;
      missing += absl::StrFormat(
          "\n  stage %d, %s: weights %.2f GiB + KV %.2f + activations and buffers %.2f + reserve "
          "%.2f > %.2f usable: "
          "%.2f GiB are missing",
          i, RankName(stages[i], rank), m.weight_bytes / kGib, kv / kGib,
          (m.activation_bytes + m.communication_bytes) / kGib, m.reserve_bytes / kGib,
          m.budget_bytes / kGib, shortfall / kGib);
    }
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat("%s with KV for %d tokens does not fit:%s",
                                                      model.name, static_cast<int64_t>(kv_tokens),
                                                      missing));
}

}  // namespace tessera::scheduler
