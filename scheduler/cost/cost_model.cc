#include "scheduler/cost/cost_model.h"

#include <algorithm>

#include "scheduler/cost/layer_sums.h"

namespace tessera::scheduler {
namespace {

// Pairs of a row that decodes, or of a draft's, and a token before it.
double DecodePairs(const StepWork& work) {
  if (work.draft_rows <= 0) return work.decode_context_tokens;
  return work.decode_context_tokens * (1 + work.draft_rows / work.decode_rows);
}

// Bytes of the layer's weights that a step reads on a rank.
struct BytesRead {
  double plain = 0;
  double experts = 0;
  double expert_rows = 0;  // of each expert that is read

  double all() const { return plain + experts; }
};

BytesRead WeightBytesRead(const ModelShape& model, const RankShare& share, int layer, double rows) {
  const LayerShape& shape = model.layer(layer);
  if (shape.experts == 0) return {LayerWeightBytes(model, share, layer)};
  const LayerPart& held = share.part(model, layer);
  const double element = MatrixElementBytes(model);
  const double part = static_cast<double>(held.experts) / static_cast<double>(shape.experts);
  const double experts = ExpertsRead(shape.experts, shape.experts_per_token, rows);
  return {(MixerParameters(shape, held) + DenseFfnParameters(shape, held)) * element +
              RouterParameters(shape) * model.weight_bytes_per_element,
          part * experts * ExpertParameters(shape) * element,
          rows * static_cast<double>(shape.experts_per_token) / std::max(experts, 1.0)};
}

// Parameters that one token uses on a rank.
double ActiveParameters(const ModelShape& model, const RankShare& share, int layer) {
  const LayerShape& shape = model.layer(layer);
  return MatrixParametersUsed(shape, share.part(model, layer)) + RouterParameters(shape);
}

ReduceCost ReduceCostOf(const DeviceSpec& device) {
  // Adding is bound by memory: gamma is 0, delta what reading or writing a byte costs.
  return {0, 1.0 / device.effective_bandwidth()};
}

// What a rank computes of a layer, between the sums.
double LayerComputeSeconds(const ModelShape& model, const DeviceSpec& device,
                           const RankShare& share, const StepWork& work, int layer) {
  const double flops = device.effective_flops();
  const double bandwidth = device.effective_bandwidth();
  const ProductPoints& products = device.products_of(model.matrix_type);
  const BytesRead weights = WeightBytesRead(model, share, layer, work.rows());
  const double active = ActiveParameters(model, share, layer);
  const double kv_bytes = KvBytesPerTokenLayer(model, share, layer);
  const double state_bytes = StateBytesPerLayer(model, share, layer);
  const auto attention =
      4.0 * static_cast<double>(share.part(model, layer).query_heads * model.layer(layer).head_dim);

  const double prompt_kv = (work.prefill_tokens + work.prefill_cached_tokens) * kv_bytes;
  // A state is read and written whole, for whatever row.
  const double decode_bytes =
      work.decode_context_tokens * kv_bytes + 2 * work.decode_rows * state_bytes;
  if (!products.empty()) {
    const double experts =
        weights.experts > 0 ? weights.experts * SecondsPerByte(products, weights.expert_rows) : 0;
    return weights.plain * SecondsPerByte(products, work.rows()) + experts +
           std::max(attention * work.prefill_attention_pairs / flops, prompt_kv / bandwidth) +
           attention * DecodePairs(work) / flops + decode_bytes / bandwidth;
  }
  const double hidden_rows = device.hides_decode ? work.rows() : work.prefill_tokens;
  const double hidden_flops = 2 * active * hidden_rows + attention * work.prefill_attention_pairs;
  const double hidden_bytes = weights.all() + prompt_kv;
  const double decode_flops =
      2 * active * (work.rows() - hidden_rows) + attention * DecodePairs(work);
  return std::max(hidden_flops / flops, hidden_bytes / bandwidth) + decode_flops / flops +
         decode_bytes / bandwidth;
}

// The sums of a layer over its ranks.
double SumSeconds(const ModelShape& model, const DeviceSpec& device,
                  const Communicator& communicator, const StepWork& work, int layer) {
  const double message =
      work.rows() * static_cast<double>(model.hidden) * model.wire_bytes_per_element;
  const ReduceCost reduce = ReduceCostOf(device);
  const int64_t summed = model.layer(layer).summed_numbers;
  const double sums =
      summed == 0
          ? 0
          : AllReduce(communicator, work.rows() * 4 * static_cast<double>(summed), reduce).seconds;
  return 2 * AllReduce(communicator, message, reduce).seconds + sums;
}

// The same shares, of attention or of ffn and experts alone.
std::vector<RankShare> BlockOf(std::vector<RankShare> shares, bool attention) {
  for (RankShare& share : shares) {
    for (LayerPart& part : share.kinds) {
      if (attention) {
        part.ffn_columns = part.experts = 0;
      } else {
        part.query_heads = part.kv_heads = part.key_groups = 0;
      }
    }
  }
  return shares;
}

// A product of the rows with elements that every rank has whole.
double ProductSeconds(const ModelShape& model, const DeviceSpec& device, double parameters,
                      double rows) {
  const double bytes = parameters * model.weight_bytes_per_element;
  const ProductPoints& products = device.products_of(model.plain_type);
  if (!products.empty()) return bytes * SecondsPerByte(products, rows);
  const double reads = bytes / device.effective_bandwidth();
  const double multiplies = 2 * parameters * rows / device.effective_flops();
  return device.hides_decode ? std::max(reads, multiplies) : reads + multiplies;
}

// A layer of the kind that the head for further tokens has; where none is, the last, which is like
// it.
int LayerLikeDraftHead(const ModelShape& model) {
  int layer = model.layers - 1;
  while (layer > 0 && model.kind_index(layer) != model.draft_kind) --layer;
  return model.kind_index(layer) == model.draft_kind ? layer : model.layers - 1;
}

// One pass of what proposes drafts over the rows of `work`, on one rank of the last stage.
double ProposalSeconds(const ModelShape& model, const StageSpec& stage, size_t rank,
                       const RankShare& share, const StepWork& work) {
  if (model.drafts.origin == DraftOrigin::kModel) {
    if (rank > 0 || model.draft_model == nullptr) return 0;
    const ModelShape& draft = *model.draft_model;
    StageSpec whole;
    whole.ranks = {stage.ranks[rank]};
    whole.layers = draft.layers;
    whole.holds_embedding = whole.holds_head = true;
    return StageSeconds(draft, whole, work) - stage.ranks[rank]->step_overhead_seconds;
  }
  const DeviceSpec& device = *stage.ranks[rank];
  const double both = 2.0 * static_cast<double>(model.hidden * model.hidden);  // inputs are joined
  return LayerSeconds(model, device, share, stage.communicator, work, LayerLikeDraftHead(model)) +
         ProductSeconds(model, device, both, work.rows()) +
         HeadSeconds(model, device, share, stage.communicator, work);
}

// What proposes drafts keeps up with prompts, and passes once more for each draft that is wanted
// next.
double DraftSeconds(const ModelShape& model, const StageSpec& stage, size_t rank,
                    const RankShare& share, const StepWork& work) {
  if (model.drafts.most == 0 || model.drafts.origin == DraftOrigin::kText) return 0;
  StepWork rows = work;
  rows.draft_passes = 0;
  rows.sampled_rows = work.draft_passes > 0 ? work.decode_rows : 0;
  if (work.draft_passes == 0) rows.decode_rows = rows.decode_context_tokens = rows.draft_rows = 0;
  if (rows.rows() <= 0) return 0;
  const double first = ProposalSeconds(model, stage, rank, share, rows);
  if (work.draft_passes <= 1 || work.decode_rows <= 0) return first;
  const StepWork further =
      DecodeWork(work.decode_rows, work.decode_context_tokens / work.decode_rows);
  return first + (work.draft_passes - 1) * ProposalSeconds(model, stage, rank, share, further);
}

double UnevenStageSeconds(const ModelShape& model, const StageSpec& stage, const StepWork& work) {
  const std::vector<RankShare> blocks[] = {BlockOf(stage.shares, true),
                                           BlockOf(stage.shares, false)};
  double step = 0, head = 0;  // of the slowest rank
  for (size_t r = 0; r < stage.ranks.size(); ++r) {
    const DeviceSpec& device = *stage.ranks[r];
    step = std::max(step, device.step_overhead_seconds);
    if (stage.holds_head) {
      head = std::max(head, HeadSeconds(model, device, stage.shares[r], stage.communicator, work) +
                                DraftSeconds(model, stage, r, stage.shares[r], work));
    }
  }
  const auto layer_seconds = [&](int layer) {
    double seconds = 0;
    for (const DeviceSpec* device : stage.ranks) {
      const double sums = SumSeconds(model, *device, stage.communicator, work, layer);
      seconds = std::max(seconds, device->layer_overhead_seconds + sums);
    }
    for (const std::vector<RankShare>& block : blocks) {
      double slowest = 0;
      for (size_t r = 0; r < block.size(); ++r) {
        slowest =
            std::max(slowest, LayerComputeSeconds(model, *stage.ranks[r], block[r], work, layer));
      }
      seconds += slowest;
    }
    return seconds;
  };
  return step + SumOverLayers(model, stage.first_layer, stage.layers, layer_seconds) + head;
}

}  // namespace

StepWork DecodeWork(double rows, double mean_context_tokens) {
  StepWork work;
  work.decode_rows = rows;
  work.decode_context_tokens = rows * mean_context_tokens;
  work.sampled_rows = rows;
  work.may_draft = true;
  return work;
}

StepWork PrefillWork(double tokens, double cached_tokens, bool last) {
  StepWork work;
  work.prefill_tokens = tokens;
  work.prefill_attention_pairs = tokens * cached_tokens + tokens * tokens / 2;
  work.prefill_cached_tokens = cached_tokens;
  work.sampled_rows = last ? 1 : 0;
  return work;
}

StepWork operator+(const StepWork& a, const StepWork& b) {
  StepWork sum;
  sum.decode_rows = a.decode_rows + b.decode_rows;
  sum.decode_context_tokens = a.decode_context_tokens + b.decode_context_tokens;
  sum.prefill_tokens = a.prefill_tokens + b.prefill_tokens;
  sum.prefill_attention_pairs = a.prefill_attention_pairs + b.prefill_attention_pairs;
  sum.prefill_cached_tokens = a.prefill_cached_tokens + b.prefill_cached_tokens;
  sum.sampled_rows = a.sampled_rows + b.sampled_rows;
  sum.draft_rows = a.draft_rows + b.draft_rows;
  sum.draft_passes = std::max(a.draft_passes, b.draft_passes);
  return sum;
}

double WeightsReadRate(const ModelShape& model, const DeviceSpec& device) {
  const ProductPoints& products = device.products_of(model.matrix_type);
  return products.empty() ? device.effective_bandwidth() : 1 / SecondsPerByte(products, 1);
}

double ProductFlops(const ModelShape& model, const DeviceSpec& device) {
  const ProductPoints& products = device.products_of(model.matrix_type);
  if (products.empty()) return device.effective_flops();
  const ProductPoint& most = products.back();
  return 2 * most.rows / (MatrixElementBytes(model) * most.seconds_per_byte);
}

double LayerSeconds(const ModelShape& model, const DeviceSpec& device, const RankShare& share,
                    const Communicator& communicator, const StepWork& work, int layer) {
  return LayerComputeSeconds(model, device, share, work, layer) + device.layer_overhead_seconds +
         SumSeconds(model, device, communicator, work, layer);
}

double HeadSeconds(const ModelShape& model, const DeviceSpec& device, const RankShare& share,
                   const Communicator& communicator, const StepWork& work) {
  if (work.sampled_rows <= 0) return 0;
  const double parameters = VocabularyParameters(model, share);
  const double logits =
      work.sampled_rows * static_cast<double>(model.vocabulary) * model.wire_bytes_per_element;
  const double bytes = parameters * model.weight_bytes_per_element;
  const ProductPoints& products = device.products_of(model.plain_type);
  if (!products.empty()) {
    return bytes * SecondsPerByte(products, work.sampled_rows) +
           GatherSeconds(communicator, logits);
  }
  const double reads = bytes / device.effective_bandwidth();
  const double multiplies = 2 * parameters * work.sampled_rows / device.effective_flops();
  return (device.hides_decode ? std::max(reads, multiplies) : reads + multiplies) +
         GatherSeconds(communicator, logits);
}

double StageSeconds(const ModelShape& model, const StageSpec& stage, const StepWork& work) {
  return StepTimer(model, work).StageSeconds(stage);
}

double StepTimer::StageSeconds(const StageSpec& stage) {
  if (!stage.shares.empty()) {
    last_ = nullptr;
    return UnevenStageSeconds(model_, stage, work_);
  }
  const bool alike = last_ != nullptr && last_->width() == stage.width() &&
                     last_->communicator == stage.communicator;
  last_ = &stage;
  if (!alike) {
    share_ = FullestShare(model_, stage.width());
    device_ = nullptr;
  }
  const auto layer_seconds = [&](const DeviceSpec& device, int layer) {
    return LayerSeconds(model_, device, share_, stage.communicator, work_, layer);
  };
  double slowest = 0;
  const DeviceSpec* previous = nullptr;
  for (size_t rank = 0; rank < stage.ranks.size(); ++rank) {
    const DeviceSpec* device = stage.ranks[rank];
    if (device == previous) continue;
    previous = device;
    double seconds = device->step_overhead_seconds;
    if (model_.uniform()) {
      if (device != device_) layer_seconds_ = layer_seconds(*device, stage.first_layer);
      device_ = device;
      seconds += stage.layers * layer_seconds_;
    } else {
      seconds += SumOverLayers(model_, stage.first_layer, stage.layers,
                               [&](int layer) { return layer_seconds(*device, layer); });
    }
    if (stage.holds_head) {
      seconds += HeadSeconds(model_, *device, share_, stage.communicator, work_) +
                 DraftSeconds(model_, stage, rank, share_, work_);
    }
    slowest = std::max(slowest, seconds);
  }
  return slowest;
}

double StageSumSeconds(const ModelShape& model, const StageSpec& stage, const StepWork& work) {
  double sums = 0;
  for (int layer = stage.first_layer; layer < stage.first_layer + stage.layers; ++layer) {
    double slowest = 0;
    for (const DeviceSpec* device : stage.ranks)
      slowest = std::max(slowest, SumSeconds(model, *device, stage.communicator, work, layer));
    sums += slowest;
  }
  return sums;
}

double HopSeconds(const ModelShape& model, const LinkSpec& link, const Communicator& next_stage,
                  double rows) {
  const double bytes = rows * static_cast<double>(model.hidden) * model.wire_bytes_per_element;
  return TransferSeconds(link, bytes) + BroadcastSeconds(next_stage, bytes);
}

}  // namespace tessera::scheduler
