#include "proto/layers/layers.h"

#include <algorithm>
#include <string>

#include "proto/activations.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

absl::Status CheckAttention(const v1::Attention& attention) {
  const auto fail = [](const std::string& reason) {
    return absl::InvalidArgumentError(StrCat(".attention", reason));
  };
  if (attention.heads() <= 0) return fail(".heads must be at least 1");
  if (attention.kv_heads() <= 0 || attention.heads() % attention.kv_heads() != 0) {
    return fail(StrCat(".kv_heads (", attention.kv_heads(), ") must divide heads (",
                       attention.heads(), ")"));
  }
  if (attention.chunked() && attention.window() <= 0) {
    return fail(".chunked needs a window, the tokens of a chunk");
  }
  if (attention.head_dim() <= 0) return fail(".head_dim must be at least 1");
  if (!attention.has_latent()) return absl::OkStatus();
  const v1::LatentAttention& latent = attention.latent();
  if (latent.rank() <= 0 || latent.query_rank() < 0 || latent.plain_dim() <= 0 ||
      latent.value_dim() <= 0 || attention.rope().rotary_dim() <= 0) {
    return fail(".latent needs a rank, plain_dim, value_dim and rotary_dim of at least 1");
  }
  if (attention.kv_heads() != 1 ||
      attention.head_dim() != attention.rope().rotary_dim() + latent.rank()) {
    return fail(StrCat(".latent is of one kv head, ", attention.rope().rotary_dim(), " + ",
                       latent.rank(), " wide; there are ", attention.kv_heads(), ", ",
                       attention.head_dim(), " wide"));
  }
  return absl::OkStatus();
}

absl::Status CheckDelta(const v1::LayerKind& kind) {
  const v1::GatedDelta& delta = kind.delta();
  const auto fail = [](const std::string& reason) {
    return absl::InvalidArgumentError(StrCat(".delta", reason));
  };
  if (kind.has_attention()) return fail(" is given beside attention: a layer has one of them");
  if (delta.key_heads() <= 0 || delta.value_heads() % delta.key_heads() != 0 ||
      delta.value_heads() <= 0) {
    return fail(StrCat(".key_heads (", delta.key_heads(), ") must divide value_heads (",
                       delta.value_heads(), ")"));
  }
  if (delta.key_dim() <= 0 || delta.value_dim() <= 0) {
    return fail(".key_dim and .value_dim must be at least 1");
  }
  return delta.conv_taps() >= 2 && delta.conv_taps() <= kMaxConvTaps
             ? absl::OkStatus()
             : fail(StrCat(".conv_taps must be 2 to ", kMaxConvTaps));
}

absl::Status CheckKind(const v1::Model& model, int index) {
  const v1::LayerKind& kind = model.kinds(index);
  const auto fail = [&](const std::string& reason) {
    return absl::InvalidArgumentError(
        StrCat("model ", model.name(), ": kinds[", index, "]", reason));
  };
  const absl::Status mixer = kind.has_delta() ? CheckDelta(kind) : CheckAttention(kind.attention());
  if (!mixer.ok()) return fail(std::string(mixer.message()));
  const v1::Experts& experts = kind.ffn().experts();
  if (experts.count() < 0 || kind.ffn().width() < 0) return fail(".ffn has a negative size");
  if (experts.count() == 0) {
    return kind.ffn().width() > 0 ? absl::OkStatus() : fail(".ffn.width must be at least 1");
  }
  if (experts.per_token() <= 0 || experts.per_token() > experts.count()) {
    return fail(".ffn.experts.per_token must be between 1 and count");
  }
  if (absl::Status groups = CheckGroups(experts); !groups.ok()) {
    return fail(StrCat(".ffn.experts.", std::string(groups.message())));
  }
  return experts.width() > 0 ? absl::OkStatus() : fail(".ffn.experts.width must be at least 1");
}

absl::Status CheckBorrowers(const v1::Model& model) {
  const std::vector<int> kinds = KindsOfLayers(model);
  for (size_t i = 0; i < kinds.size(); ++i) {
    const v1::Attention& own = model.kinds(kinds[i]).attention();
    if (!own.borrows_kv()) continue;
    const int64_t lender = KvLayerOf(model, static_cast<int64_t>(i));
    if (lender >= 0) {
      const v1::Attention& lent = KindOf(model, lender).attention();
      if (lent.kv_heads() == own.kv_heads() && lent.head_dim() == own.head_dim()) continue;
    }
    return absl::InvalidArgumentError(
        StrCat("model ", model.name(), ": layer ", i, " has no keys and values of its own, and no ",
               "layer before it has such ones with its window, heads and head size"));
  }
  return absl::OkStatus();
}

// Attention of the first kind that attends; without heads where none does.
const v1::Attention& FirstAttention(const v1::Model& model) {
  for (const v1::LayerKind& kind : model.kinds()) {
    if (!kind.has_delta()) return kind.attention();
  }
  return v1::Attention::default_instance();
}

// The first kind of layers that keep states.
const v1::GatedDelta& FirstDelta(const v1::Model& model) {
  for (const v1::LayerKind& kind : model.kinds()) {
    if (kind.has_delta()) return kind.delta();
  }
  return v1::GatedDelta::default_instance();
}

bool SameStates(const v1::GatedDelta& a, const v1::GatedDelta& b) {
  return a.key_heads() == b.key_heads() && a.value_heads() == b.value_heads() &&
         a.key_dim() == b.key_dim() && a.value_dim() == b.value_dim() &&
         a.conv_taps() == b.conv_taps();
}

}  // namespace

absl::Status CheckGroups(const v1::Experts& experts) {
  const int64_t groups = experts.groups(), kept = experts.groups_per_token();
  if (groups == 0 && kept == 0) return absl::OkStatus();
  if (groups < 1 || groups > kMaxExpertGroups || experts.count() % groups != 0 ||
      (groups > 1 && experts.count() / groups < 2)) {
    return absl::InvalidArgumentError(StrCat("groups (", groups, ") must be at most ",
                                             kMaxExpertGroups, " and cut the experts (",
                                             experts.count(), ") into equal ones of at least two"));
  }
  if (kept >= 1 && kept <= groups && kept * (experts.count() / groups) >= experts.per_token()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(StrCat("groups_per_token (", kept, ") must be at most groups (",
                                           groups, "), and hold as many experts as a token uses (",
                                           experts.per_token(), ")"));
}

absl::Status CheckLayers(const v1::Model& model) {
  for (int i = 0; i < model.kinds_size(); ++i) {
    if (absl::Status kind = CheckKind(model, i); !kind.ok()) return kind;
  }
  int64_t layers = 0;
  for (const v1::LayerRun& run : model.layers()) {
    if (run.kind() < 0 || run.kind() >= model.kinds_size() || run.count() < 1) {
      return absl::InvalidArgumentError(StrCat(
          "model ", model.name(), ": layers name ", run.count(), " layers of kind ", run.kind(),
          "; there are ", model.kinds_size(), " kinds, and a run has at least one layer"));
    }
    layers += run.count();
  }
  if (layers >= 1 && layers <= kMaxLayers) return CheckBorrowers(model);
  return absl::InvalidArgumentError(
      StrCat("model ", model.name(), " has ", layers, " layers; there must be 1 to ", kMaxLayers));
}

int64_t LayerCount(const v1::Model& model) {
  int64_t count = 0;
  for (const v1::LayerRun& run : model.layers()) count += run.count();
  return count;
}

int KindIndexOf(const v1::Model& model, int64_t layer) {
  int64_t end = 0;
  for (const v1::LayerRun& run : model.layers()) {
    end += run.count();
    if (layer < end) return run.kind();
  }
  return 0;
}

const v1::LayerKind& KindOf(const v1::Model& model, int64_t layer) {
  return model.kinds(KindIndexOf(model, layer));
}

std::vector<int> KindsOfLayers(const v1::Model& model) {
  std::vector<int> kinds;
  for (const v1::LayerRun& run : model.layers()) kinds.insert(kinds.end(), run.count(), run.kind());
  return kinds;
}

const v1::LayerShare& ShareOf(const v1::Model& model, const v1::WorkerShare& share, int64_t layer) {
  const int kind = KindIndexOf(model, layer);
  return kind < share.kinds_size() ? share.kinds(kind) : v1::LayerShare::default_instance();
}

int64_t KvLayerOf(const v1::Model& model, int64_t layer) {
  const int64_t window = KindOf(model, layer).attention().window();
  for (int64_t i = layer; i >= 0; --i) {
    const v1::Attention& attention = KindOf(model, i).attention();
    if (!attention.borrows_kv() && (i == layer || attention.window() == window)) return i;
  }
  return -1;
}

bool NeedsOneStage(const v1::Model& model) {
  const auto borrows = [](const v1::LayerKind& kind) { return kind.attention().borrows_kv(); };
  return model.per_layer_width() > 0 ||
         std::any_of(model.kinds().begin(), model.kinds().end(), borrows);
}

void AppendLayers(const v1::LayerKind& kind, int64_t count, v1::Model* model) {
  if (count < 1) return;
  const std::string text = kind.SerializeAsString();
  int index = 0;
  while (index < model->kinds_size() && model->kinds(index).SerializeAsString() != text) ++index;
  if (index == model->kinds_size()) *model->add_kinds() = kind;
  const int runs = model->layers_size();
  v1::LayerRun* run = runs > 0 && model->layers(runs - 1).kind() == index
                          ? model->mutable_layers(runs - 1)
                          : model->add_layers();
  run->set_kind(index);
  run->set_count(static_cast<int32_t>(run->count() + count));
}

void SetDraftHead(const v1::LayerKind& kind, v1::Model* model) {
  const std::string text = kind.SerializeAsString();
  for (int i = 0; i < model->kinds_size(); ++i) {
    if (model->kinds(i).SerializeAsString() != text) continue;
    model->mutable_draft_head()->set_kind(i);
    model->mutable_draft_head()->set_layer(static_cast<int32_t>(LayerCount(*model)));
  }
}

bool HoldsDraftHead(const v1::Model& model, const v1::WorkerShare& share) {
  return model.draft_head().used() && share.holds_head();
}

v1::Model DraftHeadModel(const v1::Model& model) {
  v1::Model head = model;
  head.mutable_draft_head()->set_used(false);
  head.clear_layers();
  v1::LayerRun* run = head.add_layers();
  run->set_kind(model.draft_head().kind());
  run->set_count(1);
  return head;
}

v1::WorkerShare DraftHeadShare(const v1::WorkerShare& share) {
  v1::WorkerShare head = share;
  head.mutable_layers()->set_begin(0);
  head.mutable_layers()->set_end(1);
  head.set_holds_embedding(true);
  return head;
}

bool HoldsDraftModel(const v1::Model& model, const v1::WorkerShare& share) {
  return model.has_draft_model() && share.holds_head() && share.vocabulary_rows().begin() == 0;
}

v1::DataType DraftWeightType(const v1::Model& draft, v1::DataType asked) {
  const bool codes = KeepsInt4(draft) && asked == v1::DATA_TYPE_INT8;
  return codes ? v1::DATA_TYPE_UNSPECIFIED : asked;
}

v1::WorkerShare WholeModelShare(const v1::Model& model) {
  v1::WorkerShare share;
  share.mutable_layers()->set_end(LayerCount(model));
  share.set_holds_embedding(true);
  share.set_holds_head(true);
  share.mutable_vocabulary_rows()->set_end(model.vocabulary());
  for (const v1::LayerKind& kind : model.kinds()) {
    v1::LayerShare* part = share.add_kinds();
    if (kind.has_delta()) {
      part->mutable_key_groups()->set_end(kind.delta().key_heads());
    } else {
      part->mutable_query_heads()->set_end(kind.attention().heads());
      part->mutable_kv_heads()->set_end(kind.attention().kv_heads());
    }
    part->mutable_ffn_columns()->set_end(kind.ffn().width());
    part->mutable_experts()->set_end(kind.ffn().experts().count());
  }
  return share;
}

absl::Status CheckOneKvShape(const v1::Model& model) {
  for (const v1::LayerKind& kind : model.kinds()) {
    if (kind.has_delta()) {
      if (SameStates(kind.delta(), FirstDelta(model))) continue;
      return absl::InvalidArgumentError(
          StrCat("model ", model.name(),
                 ": states of unlike layers (gated delta nets) are not supported"));
    }
    const v1::Attention &first = FirstAttention(model), &other = kind.attention();
    if (other.borrows_kv()) {
      return absl::InvalidArgumentError(
          StrCat("model ", model.name(), ": layers that borrow keys and values are not supported"));
    }
    if (first.kv_heads() == other.kv_heads() && first.head_dim() == other.head_dim() &&
        first.has_latent() == other.has_latent()) {
      continue;
    }
    return absl::InvalidArgumentError(StrCat("model ", model.name(), ": layers with ",
                                             first.kv_heads(), " kv heads of ", first.head_dim(),
                                             " beside layers with ", other.kv_heads(), " of ",
                                             other.head_dim(), " are not supported"));
  }
  return absl::OkStatus();
}

int64_t KvHeadDim(const v1::Model& model) { return FirstAttention(model).head_dim(); }

int KvPlanes(const v1::Model& model) { return FirstAttention(model).has_latent() ? 1 : 2; }

const v1::Range& KvHeads(const v1::WorkerShare& share) {
  for (const v1::LayerShare& part : share.kinds()) {
    if (part.kv_heads().end() > part.kv_heads().begin()) return part.kv_heads();
  }
  return v1::Range::default_instance();
}

bool KeepsStates(const v1::Model& model) {
  return std::any_of(model.kinds().begin(), model.kinds().end(),
                     [](const v1::LayerKind& kind) { return kind.has_delta(); });
}

int64_t DynamicRopeTokens(const v1::Model& model) {
  for (const v1::LayerKind& kind : model.kinds()) {
    const v1::Rope& rope = kind.attention().rope();
    if (rope.scaling() == v1::ROPE_SCALING_KIND_DYNAMIC) return rope.original_max_positions();
  }
  return 0;
}

bool SameLayers(const v1::Model& a, const v1::Model& b) {
  const auto same = [](const auto& x, const auto& y) {
    return x.SerializeAsString() == y.SerializeAsString();
  };
  return std::equal(a.kinds().begin(), a.kinds().end(), b.kinds().begin(), b.kinds().end(), same) &&
         std::equal(a.layers().begin(), a.layers().end(), b.layers().begin(), b.layers().end(),
                    same);
}

bool KeepsInt4(const v1::Model& model) {
  return model.has_quantization() && !model.quantization().decoded();
}

bool IsMixed(const v1::Quantization& quantization) {
  return quantization.code_bytes() > 0 || quantization.decoded_part() > 0;
}

int64_t CodeUnitInputs(const v1::Model& model) {
  const v1::Quantization& quantization = model.quantization();
  if (KeepsInt4(model)) return Int4GroupInputs(quantization.group_size());
  // One scale of an output, or of all of them, is the same on every rank.
  if (quantization.code_bytes() == 0 || quantization.block_columns() == 0) return 1;
  return Int4GroupInputs(quantization.block_columns());
}

bool HasExperts(const v1::Model& model) { return MaxExperts(model) > 0; }

int64_t MaxExperts(const v1::Model& model) {
  int64_t most = 0;
  for (const v1::LayerKind& kind : model.kinds()) {
    most = std::max<int64_t>(most, kind.ffn().experts().count());
  }
  return most;
}

int64_t MaxExpertsPerToken(const v1::Model& model) {
  int64_t most = 0;
  for (const v1::LayerKind& kind : model.kinds()) {
    most = std::max<int64_t>(most, kind.ffn().experts().per_token());
  }
  return most;
}

}  // namespace tessera
