#include "scheduler/cost/model_shape.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/activations.h"
#include "proto/layers/kv_sizes.h"
#include "proto/layers/layers.h"
#include "scheduler/apportion.h"

namespace tessera::scheduler {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

absl::Status CheckShape(const v1::Model& model) {
  const auto fail = [&](const char* field, const char* reason) {
    return absl::InvalidArgumentError(
        absl::StrCat("model ", model.name(), ": ", field, " ", reason));
  };
  if (model.hidden() <= 0) return fail("hidden", "must be at least 1");
  if (model.vocabulary() <= 0) return fail("vocabulary", "must be at least 1");
  return CheckLayers(model);
}

// Kinds of equal numbers are one here: norms cost nothing, nor do windows that are never full.
void SetLayers(const v1::Model& model, ModelShape* shape) {
  const bool windows = LongestWindow(model) > 0 && LongestWindow(model) < model.max_positions();
  std::vector<int> merged;
  for (const v1::LayerKind& kind : model.kinds()) {
    const LayerShape layer = ShapeOf(model, kind);
    const int64_t window = windows ? kind.attention().window() : 0;
    size_t found = 0;
    while (found < shape->kinds.size() &&
           (shape->kinds[found] != layer || shape->windows[found] != window))
      ++found;
    merged.push_back(static_cast<int>(found));
    if (found < shape->kinds.size()) continue;
    shape->kinds.push_back(layer);
    shape->windows.push_back(window);
  }
  if (model.draft_head().used()) {
    shape->draft_kind = merged[static_cast<size_t>(model.draft_head().kind())];
  }
  if (!windows) shape->windows.clear();
  for (const int kind : KindsOfLayers(model)) {
    shape->kind_of_layer.push_back(merged[static_cast<size_t>(kind)]);
  }
  shape->layers = static_cast<int>(shape->kind_of_layer.size());
}

// Ranks hold of one kind of layer at most this.
LayerPart FullestPart(const ModelShape& model, const LayerShape& layer, int width) {
  LayerPart part;
  part.key_groups = CeilDiv(layer.key_groups, width);
  const int64_t group = layer.kv_heads == 0 ? 0 : layer.heads / layer.kv_heads;
  if (layer.kv_heads == 0) {
    part.kv_heads = part.query_heads = 0;
  } else if (width <= layer.kv_heads) {
    part.kv_heads = CeilDiv(layer.kv_heads, width);
    part.query_heads = part.kv_heads * group;
  } else {
    part.kv_heads = 1;
    part.query_heads = CeilDiv(group, width / layer.kv_heads);
  }
  const int64_t unit = model.ffn_unit;
  part.ffn_columns =
      std::min(layer.ffn_width, CeilDiv(CeilDiv(layer.ffn_width, unit), width) * unit);
  part.experts = CeilDiv(layer.experts, width);
  return part;
}

WeightType PlainType(v1::DataType dtype) {
  switch (dtype) {
    case v1::DATA_TYPE_FLOAT32: return WeightType::kFloat32;
    case v1::DATA_TYPE_INT8: return WeightType::kInt8;
    default: return WeightType::kHalf;
  }
}

// As workers keep codes: those of files of many types in what is nearest in size.
WeightType CodeType(const v1::Quantization& quantization, double code_bytes) {
  const bool four_bits = code_bytes < (Int4ElementBytes(1 << 30) + 1) / 2;
  switch (quantization.format()) {
    case v1::WEIGHT_FORMAT_FP8: return WeightType::kFp8;
    case v1::WEIGHT_FORMAT_MXFP4: return four_bits ? WeightType::kMxfp4 : WeightType::kInt8;
    default: return four_bits ? WeightType::kInt4 : WeightType::kInt8;
  }
}

// Embedding and head, and a table of positions.
double TableParameters(const ModelShape& model) {
  return (model.tied_embeddings ? 1 : 2) * VocabularyParameters(model, FullestShare(model, 1)) +
         static_cast<double>(model.learned_positions * model.hidden +
                             model.vocabulary * model.per_layer_columns +
                             model.per_layer_parameters);
}

}  // namespace

double BytesPerElement(v1::DataType dtype) {
  switch (dtype) {
    case v1::DATA_TYPE_FLOAT32: return 4;
    case v1::DATA_TYPE_INT8:
    case v1::DATA_TYPE_FP8: return 1;
    default: return 2;
  }
}

bool HasKvScales(v1::DataType dtype) {
  return dtype == v1::DATA_TYPE_INT8 || dtype == v1::DATA_TYPE_FP8;
}

double KvTokenBytes(const ModelShape& model, const LayerShape& layer, const LayerPart& part) {
  const KvElement element = {static_cast<int64_t>(model.kv_bytes_per_element),
                             model.kv_scale_bytes};
  return static_cast<double>(KvBytesPerToken(layer, part, element));
}

absl::StatusOr<ModelShape> MakeModelShape(const v1::Model& model, v1::DataType weight_dtype,
                                          v1::DataType kv_dtype) {
  if (absl::Status s = CheckShape(model); !s.ok()) return s;
  if (KeepsInt4(model) && weight_dtype == v1::DATA_TYPE_INT8) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model ", model.name(),
        ": its weights are quantised already and are not quantised to int8: ask for no type, or "
        "take the original checkpoint"));
  }
  ModelShape shape;
  shape.name = model.name();
  SetLayers(model, &shape);
  shape.hidden = model.hidden();
  shape.vocabulary = model.vocabulary();
  shape.embedding_width = model.embedding_width() > 0 ? model.embedding_width() : model.hidden();
  shape.learned_positions = LearnedPositions(model);
  shape.one_stage = NeedsOneStage(model);
  shape.per_layer_columns = PerLayerColumns(model);
  shape.per_layer_parameters = PerLayerParameters(model);
  shape.tied_embeddings = model.tied_embeddings();
  shape.max_positions = model.max_positions();
  const v1::DataType weights =
      weight_dtype == v1::DATA_TYPE_UNSPECIFIED ? model.dtype() : weight_dtype;
  shape.weight_bytes_per_element = BytesPerElement(weights);
  if (KeepsInt4(model) || IsMixed(model.quantization())) {
    shape.code_group_inputs = Int4GroupInputs(model.quantization().group_size());
    shape.code_bytes = Int4ElementBytes(shape.code_group_inputs);
    if (IsMixed(model.quantization())) {
      shape.code_bytes = model.quantization().code_bytes();
      shape.decoded_part = model.quantization().decoded_part();
    }
  }
  shape.plain_type = shape.matrix_type = PlainType(weights);
  if (shape.code_bytes > 0 && shape.decoded_part < 0.5) {
    shape.matrix_type = CodeType(model.quantization(), shape.code_bytes / (1 - shape.decoded_part));
  }
  shape.ffn_unit = weights == v1::DATA_TYPE_INT8 ? kInt8GroupInputs : CodeUnitInputs(model);
  shape.activation_bytes_per_element = kActivationElementBytes;
  shape.wire_bytes_per_element = std::max(2.0, shape.weight_bytes_per_element);
  shape.kv_bytes_per_element = kv_dtype == v1::DATA_TYPE_UNSPECIFIED
                                   ? std::max(2.0, shape.weight_bytes_per_element)
                                   : BytesPerElement(kv_dtype);
  if (HasKvScales(kv_dtype)) shape.kv_scale_bytes = kKvScaleBytes;
  if (!model.has_draft_model()) return shape;
  const v1::Model& draft = model.draft_model().model();
  auto drafts = MakeModelShape(draft, DraftWeightType(draft, weight_dtype), kv_dtype);
  if (!drafts.ok()) return drafts.status();
  drafts->windows.clear();
  drafts->max_positions = shape.max_positions;  // of its block tables
  drafts->kv_bytes_per_element = shape.kv_bytes_per_element;
  drafts->kv_scale_bytes = shape.kv_scale_bytes;
  shape.draft_model = std::make_shared<const ModelShape>(*std::move(drafts));
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
  for (const LayerShape& layer : model.kinds) {
    share.kinds.push_back(FullestPart(model, layer, width));
  }
  share.vocabulary_rows = CeilDiv(model.vocabulary, width);
  return share;
}

std::vector<RankShare> SharesBy(const ModelShape& model, std::span<const double> fractions) {
  const int width = static_cast<int>(fractions.size());
  std::vector<RankShare> shares(fractions.size(), FullestShare(model, width));
  for (size_t k = 0; k < model.kinds.size(); ++k) {
    const LayerShape& layer = model.kinds[k];
    const int64_t unit = model.ffn_unit;
    const std::vector<int64_t> heads = Apportion(layer.kv_heads, fractions);
    const bool latent = layer.query_dim > 0;
    const std::vector<int64_t> readers = Apportion(latent ? layer.heads : 0, fractions);
    const std::vector<int64_t> groups = Apportion(layer.key_groups, fractions);
    const std::vector<int64_t> units = Apportion(CeilDiv(layer.ffn_width, unit), fractions);
    const std::vector<int64_t> experts = Apportion(layer.experts, fractions);
    int64_t before = 0;
    for (size_t rank = 0; rank < shares.size(); ++rank) {
      LayerPart& part = shares[rank].kinds[k];
      part.key_groups = groups[rank];
      if (latent) {
        part.query_heads = readers[rank];
      } else if (width <= layer.kv_heads) {
        part.kv_heads = heads[rank];
        part.query_heads = heads[rank] * (layer.heads / layer.kv_heads);
      }
      part.ffn_columns = std::min(layer.ffn_width - before, units[rank] * unit);
      before += part.ffn_columns;
      part.experts = experts[rank];
    }
  }
  const std::vector<int64_t> rows = Apportion(model.vocabulary, fractions);
  for (size_t rank = 0; rank < shares.size(); ++rank) shares[rank].vocabulary_rows = rows[rank];
  return shares;
}

int MaxWidth(const ModelShape& model) {
  int64_t width = model.vocabulary;
  for (const LayerShape& layer : model.kinds) {
    width = std::min(width, layer.key_groups > 0 ? layer.key_groups : layer.heads);
    if (layer.experts > 0) width = std::min(width, layer.experts);
    if (layer.ffn_width > 0) width = std::min(width, CeilDiv(layer.ffn_width, model.ffn_unit));
  }
  return static_cast<int>(width);
}

double LayerParameters(const ModelShape& model, const RankShare& share, int layer) {
  const LayerShape& shape = model.layer(layer);
  return MatrixParameters(shape, share.part(model, layer)) + RouterParameters(shape);
}

double MatrixElementBytes(const ModelShape& model) {
  if (model.code_group_inputs == 0) return model.weight_bytes_per_element;
  return model.code_bytes + model.decoded_part * model.weight_bytes_per_element;
}

double LayerWeightBytes(const ModelShape& model, const RankShare& share, int layer) {
  const LayerShape& shape = model.layer(layer);
  return MatrixParameters(shape, share.part(model, layer)) * MatrixElementBytes(model) +
         RouterParameters(shape) * model.weight_bytes_per_element;
}

double ExpertsRead(int64_t experts, int64_t per_token, double tokens) {
  if (experts == 0) return 0;
  const double missed = 1.0 - static_cast<double>(per_token) / static_cast<double>(experts);
  return static_cast<double>(experts) * (1.0 - std::pow(missed, tokens));
}

double VocabularyParameters(const ModelShape& model, const RankShare& share) {
  return static_cast<double>(share.vocabulary_rows * model.embedding_width);
}

bool HasOneKvShape(const ModelShape& model) {
  // Layers with states are like each other, and so are those that attend.
  const auto is_like_others = [&](const LayerShape& layer) {
    const auto first = std::find_if(
        model.kinds.begin(), model.kinds.end(),
        [&](const LayerShape& other) { return (other.key_groups > 0) == (layer.key_groups > 0); });
    return layer.kv_heads == first->kv_heads && layer.head_dim == first->head_dim &&
           layer.kv_planes == first->kv_planes && layer.group_columns == first->group_columns &&
           layer.group_state_elements == first->group_state_elements &&
           layer.group_values == first->group_values && layer.key_groups == first->key_groups &&
           !layer.borrows_kv;
  };
  return std::all_of(model.kinds.begin(), model.kinds.end(), is_like_others);
}

double KvBytesPerTokenLayer(const ModelShape& model, const RankShare& share, int layer) {
  return KvTokenBytes(model, model.layer(layer), share.part(model, layer));
}

double EndlessKvBytesPerTokenLayer(const ModelShape& model, const RankShare& share, int layer) {
  return model.window(layer) > 0 ? 0 : KvBytesPerTokenLayer(model, share, layer);
}

double WindowKvBytesPerTokenLayer(const ModelShape& model, const RankShare& share, int layer) {
  return model.window(layer) > 0 ? KvBytesPerTokenLayer(model, share, layer) : 0;
}

double StateBytesPerLayer(const ModelShape& model, const RankShare& share, int layer) {
  return static_cast<double>(StateElements(model.layer(layer), share.part(model, layer)) *
                             kStateElementBytes);
}

double KvBytesPerToken(const ModelShape& model) {
  double bytes = 0;
  for (int layer = 0; layer < model.layers; ++layer)
    bytes += KvTokenBytes(model, model.layer(layer), WholeLayer(model.layer(layer)));
  return bytes;
}

double KvElementBytes(const ModelShape& model) {
  int64_t elements = 0;
  for (int layer = 0; layer < model.layers; ++layer)
    elements += KvElementsPerToken(model.layer(layer), WholeLayer(model.layer(layer)));
  return elements == 0 ? model.kv_bytes_per_element
                       : KvBytesPerToken(model) / static_cast<double>(elements);
}

double SequenceBytes(const ModelShape& model, double tokens) {
  const RankShare whole = FullestShare(model, 1);
  double bytes = 0;
  for (int layer = 0; layer < model.layers; ++layer) {
    const auto window = static_cast<double>(model.window(layer));
    bytes += StateBytesPerLayer(model, whole, layer) +
             KvBytesPerTokenLayer(model, whole, layer) *
                 (window > 0 ? std::min(tokens, window) : tokens);
  }
  return bytes;
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
