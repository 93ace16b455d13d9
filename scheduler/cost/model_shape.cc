#include "scheduler/cost/model_shape.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/activations.h"

namespace tessera::scheduler {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Columns of an ffn that stay together: the inputs of one scale, where weights are int8 or int4.
int64_t FfnUnit(const ModelShape& model) {
  if (model.int4_group_inputs > 0) return model.int4_group_inputs;
  return model.weight_bytes_per_element < 2 ? kInt8GroupInputs : 1;
}

absl::Status CheckShape(const v1::Model& model) {
  const auto fail = [&](const char* field, const char* reason) {
    return absl::InvalidArgumentError(
        absl::StrCat("model ", model.name(), ": ", field, " ", reason));
  };
  if (model.layers() <= 0) return fail("layers", "must be at least 1");
  if (model.hidden() <= 0) return fail("hidden", "must be at least 1");
  if (model.heads() <= 0) return fail("heads", "must be at least 1");
  if (model.kv_heads() <= 0 || model.heads() % model.kv_heads() != 0) {
    return fail("kv_heads", "must divide heads");
  }
  if (model.head_dim() <= 0) return fail("head_dim", "must be at least 1");
  if (model.vocabulary() <= 0) return fail("vocabulary", "must be at least 1");
  if (model.ffn_width() <= 0 && model.experts().count() == 0)
    return fail("ffn_width", "must be at least 1");
  if (model.experts().count() > 0 &&
      (model.experts().per_token() <= 0 || model.experts().per_token() > model.experts().count())) {
    return fail("experts.per_token", "must be between 1 and experts.count");
  }
  return absl::OkStatus();
}

void SetExperts(const v1::Model& model, ModelShape* shape) {
  if (model.experts().count() == 0) return;
  shape->experts = model.experts().count();
  shape->experts_per_token = model.experts().per_token();
  shape->expert_width = model.experts().ffn_width();
  if (model.experts().dense_layers().empty()) return;
  shape->dense_layer.assign(static_cast<size_t>(shape->layers), false);
  for (const int layer : model.experts().dense_layers()) {
    if (layer >= 0 && layer < shape->layers) shape->dense_layer[static_cast<size_t>(layer)] = true;
  }
}

// Embedding and head, and a table of positions.
double TableParameters(const ModelShape& model) {
  return (model.tied_embeddings ? 1 : 2) * VocabularyParameters(model, FullestShare(model, 1)) +
         static_cast<double>(model.learned_positions * model.hidden);
}

}  // namespace

double BytesPerElement(v1::DataType dtype) {
  switch (dtype) {
    case v1::DATA_TYPE_FLOAT32: return 4;
    case v1::DATA_TYPE_INT8: return 1;
    default: return 2;
  }
}

absl::StatusOr<ModelShape> MakeModelShape(const v1::Model& model, v1::DataType weight_dtype,
                                          v1::DataType kv_dtype) {
  if (absl::Status s = CheckShape(model); !s.ok()) return s;
  if (model.has_quantization() && weight_dtype == v1::DATA_TYPE_INT8) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model ", model.name(),
        ": its weights are int4 already and are not quantised to int8: ask for no type, or take "
        "the original checkpoint"));
  }
  ModelShape shape;
  shape.name = model.name();
  shape.layers = model.layers();
  shape.hidden = model.hidden();
  shape.heads = model.heads();
  shape.kv_heads = model.kv_heads();
  shape.head_dim = model.head_dim();
  shape.ffn_width = model.ffn_width();
  shape.vocabulary = model.vocabulary();
  shape.embedding_width = model.embedding_width() > 0 ? model.embedding_width() : model.hidden();
  shape.learned_positions =
      model.learned_positions() ? model.max_positions() + model.learned_position_offset() : 0;
  shape.ffn_matrices = model.gated_ffn() ? 3 : 2;
  shape.tied_embeddings = model.tied_embeddings();
  shape.max_positions = model.max_positions();
  SetExperts(model, &shape);
  const v1::DataType weights =
      weight_dtype == v1::DATA_TYPE_UNSPECIFIED ? model.dtype() : weight_dtype;
  shape.weight_bytes_per_element = BytesPerElement(weights);
  if (model.has_quantization())
    shape.int4_group_inputs = Int4GroupInputs(model.quantization().group_size());
  shape.activation_bytes_per_element = kActivationElementBytes;
  shape.wire_bytes_per_element = std::max(2.0, shape.weight_bytes_per_element);
  shape.kv_bytes_per_element = kv_dtype == v1::DATA_TYPE_UNSPECIFIED
                                   ? std::max(2.0, shape.weight_bytes_per_element)
                                   : BytesPerElement(kv_dtype);
  return shape;
}

ModelShape WithWireType(ModelShape shape, double runtime_reserve_bytes) {
  shape.wire_bytes_per_element = runtime_reserve_bytes == 0
                                     ? kWireElementBytes
                                     : std::max(2.0, shape.weight_bytes_per_element);
  return shape;
}

RankShare FullestShare(const ModelShape& model, int width) {
  RankShare share;
  const int64_t group = model.heads / model.kv_heads;
  if (width <= model.kv_heads) {
    share.kv_heads = CeilDiv(model.kv_heads, width);
    share.query_heads = share.kv_heads * group;
  } else {
    share.kv_heads = 1;
    share.query_heads = CeilDiv(group, width / model.kv_heads);
  }
  const int64_t unit = FfnUnit(model);
  share.ffn_columns =
      std::min(model.ffn_width, CeilDiv(CeilDiv(model.ffn_width, unit), width) * unit);
  share.vocabulary_rows = CeilDiv(model.vocabulary, width);
  share.experts = static_cast<int>(CeilDiv(model.experts, width));
  return share;
}

int MaxWidth(const ModelShape& model) {
  int64_t width = model.heads;
  if (model.experts > 0) width = std::min<int64_t>(width, model.experts);
  if (model.ffn_width > 0) width = std::min(width, CeilDiv(model.ffn_width, FfnUnit(model)));
  return static_cast<int>(std::min(width, model.vocabulary));
}

double AttentionParameters(const ModelShape& model, const RankShare& share) {
  const auto heads = static_cast<double>(2 * share.query_heads + 2 * share.kv_heads);
  return static_cast<double>(model.hidden * model.head_dim) * heads;
}

double DenseFfnParameters(const ModelShape& model, const RankShare& share) {
  return static_cast<double>(model.ffn_matrices) *
         static_cast<double>(model.hidden * share.ffn_columns);
}

double ExpertParameters(const ModelShape& model) {
  return static_cast<double>(model.ffn_matrices) *
         static_cast<double>(model.hidden * model.expert_width);
}

double RouterParameters(const ModelShape& model) {
  return static_cast<double>(model.hidden) * model.experts;
}

double LayerParameters(const ModelShape& model, const RankShare& share, int layer) {
  const double attention = AttentionParameters(model, share);
  if (!model.has_experts(layer)) return attention + DenseFfnParameters(model, share);
  return attention + RouterParameters(model) + share.experts * ExpertParameters(model);
}

double MatrixElementBytes(const ModelShape& model) {
  return model.int4_group_inputs > 0 ? Int4ElementBytes(model.int4_group_inputs)
                                     : model.weight_bytes_per_element;
}

double LayerWeightBytes(const ModelShape& model, const RankShare& share, int layer) {
  const double router = model.has_experts(layer) ? RouterParameters(model) : 0;
  return (LayerParameters(model, share, layer) - router) * MatrixElementBytes(model) +
         router * model.weight_bytes_per_element;
}

double ExpertsRead(int experts, int per_token, double tokens) {
  if (experts == 0) return 0;
  const double missed = 1.0 - static_cast<double>(per_token) / experts;
  return experts * (1.0 - std::pow(missed, tokens));
}

double VocabularyParameters(const ModelShape& model, const RankShare& share) {
  return static_cast<double>(share.vocabulary_rows * model.embedding_width);
}

double KvBytesPerTokenLayer(const ModelShape& model, const RankShare& share) {
  return static_cast<double>(2 * share.kv_heads * model.head_dim) * model.kv_bytes_per_element;
}

double KvBytesPerToken(const ModelShape& model) {
  return model.layers * static_cast<double>(2 * model.kv_heads * model.head_dim) *
         model.kv_bytes_per_element;
}

double TotalParameters(const ModelShape& model) {
  const RankShare whole = FullestShare(model, 1);
  double sum = TableParameters(model);
  for (int layer = 0; layer < model.layers; ++layer) sum += LayerParameters(model, whole, layer);
  return sum;
}

double TotalWeightBytes(const ModelShape& model) {
  const RankShare whole = FullestShare(model, 1);
  double sum = TableParameters(model) * model.weight_bytes_per_element;
  for (int layer = 0; layer < model.layers; ++layer) sum += LayerWeightBytes(model, whole, layer);
  return sum;
}

}  // namespace tessera::scheduler
