#include "proto/layers/layer_sizes.h"

#include "proto/layers/layers.h"

namespace tessera {
namespace {

int64_t Width(const v1::Range& range) { return range.end() - range.begin(); }

}  // namespace

LayerShape ShapeOf(const v1::Model& model, const v1::LayerKind& kind) {
  const v1::Attention& attention = kind.attention();
  const v1::Ffn& ffn = kind.ffn();
  LayerShape layer = {.hidden = model.hidden(),
                      .heads = attention.heads(),
                      .kv_heads = attention.kv_heads(),
                      .head_dim = attention.head_dim(),
                      .ffn_width = ffn.width(),
                      .ffn_matrices = ffn.gated() ? 3 : 2,
                      .experts = ffn.experts().count(),
                      .experts_per_token = ffn.experts().per_token(),
                      .expert_width = ffn.experts().width(),
                      .summed_numbers = attention.qk_norm_full_width() ? 2 : 0,
                      .borrows_kv = attention.borrows_kv(),
                      .further_row_floats = (ffn.normed_apart() ? model.hidden() : 0) +
                                            (ffn.experts().scales_input() ? 2 : 0),
                      .gated_heads = attention.output_gate() ? attention.heads() : 0};
  if (attention.has_latent()) {
    const v1::LatentAttention& latent = attention.latent();
    layer.kv_planes = 1;
    layer.latent_columns = attention.head_dim() + latent.query_rank();
    layer.latent_rank = latent.rank();
    layer.query_inputs = latent.query_rank() > 0 ? latent.query_rank() : model.hidden();
    layer.query_dim = latent.plain_dim() + attention.rope().rotary_dim();
    layer.plain_dim = latent.plain_dim();
    layer.value_dim = latent.value_dim();
  }
  if (!kind.has_delta()) return layer;
  const v1::GatedDelta& delta = kind.delta();
  const int64_t values = delta.value_heads() / delta.key_heads();
  layer.key_groups = delta.key_heads();
  layer.group_values = values * delta.value_dim();
  layer.group_columns = 2 * (delta.key_dim() + layer.group_values);
  layer.group_gates = 2 * values;
  layer.conv_taps = delta.conv_taps();
  layer.group_state_elements = layer.group_values * delta.key_dim() +
                               (delta.conv_taps() - 1) * (2 * delta.key_dim() + layer.group_values);
  return layer;
}

LayerPart WholeLayer(const LayerShape& layer) {
  return {.query_heads = layer.heads,
          .kv_heads = layer.kv_heads,
          .ffn_columns = layer.ffn_width,
          .experts = layer.experts,
          .key_groups = layer.key_groups};
}

LayerPart PartOf(const v1::LayerShare& share) {
  return {.query_heads = Width(share.query_heads()),
          .kv_heads = Width(share.kv_heads()),
          .ffn_columns = Width(share.ffn_columns()),
          .experts = Width(share.experts()),
          .key_groups = Width(share.key_groups())};
}

double MixerParameters(const LayerShape& layer, const LayerPart& part) {
  if (layer.query_dim > 0) {
    const int64_t of_head = layer.query_inputs * layer.query_dim +
                            layer.latent_rank * (layer.plain_dim + layer.value_dim) +
                            layer.hidden * layer.value_dim;
    const int64_t of_all = part.query_heads > 0 ? layer.hidden * layer.latent_columns : 0;
    return static_cast<double>(of_all + part.query_heads * of_head);
  }
  const int64_t projections = layer.gated_heads > 0 ? 3 : 2;
  const int64_t kv_heads = layer.borrows_kv ? 0 : part.kv_heads;
  const int64_t heads = projections * part.query_heads + 2 * kv_heads;
  const int64_t of_group = layer.group_columns + layer.group_values + layer.group_gates;
  return static_cast<double>(layer.hidden) *
         static_cast<double>(layer.head_dim * heads + of_group * part.key_groups);
}

double DenseFfnParameters(const LayerShape& layer, const LayerPart& part) {
  return static_cast<double>(layer.ffn_matrices) *
         static_cast<double>(layer.hidden * part.ffn_columns);
}

double ExpertParameters(const LayerShape& layer) {
  return static_cast<double>(layer.ffn_matrices) *
         static_cast<double>(layer.hidden * layer.expert_width);
}

double RouterParameters(const LayerShape& layer) {
  return static_cast<double>(layer.hidden * layer.experts);
}

double MatrixParameters(const LayerShape& layer, const LayerPart& part) {
  return MixerParameters(layer, part) + DenseFfnParameters(layer, part) +
         static_cast<double>(part.experts) * ExpertParameters(layer);
}

double MatrixParametersUsed(const LayerShape& layer, const LayerPart& part) {
  const double dense = MixerParameters(layer, part) + DenseFfnParameters(layer, part);
  if (layer.experts == 0) return dense;
  const double share = static_cast<double>(part.experts) / static_cast<double>(layer.experts);
  return dense + share * static_cast<double>(layer.experts_per_token) * ExpertParameters(layer);
}

int64_t StateElements(const LayerShape& layer, const LayerPart& part) {
  return part.key_groups * layer.group_state_elements;
}

int64_t KvElementsPerToken(const LayerShape& layer, const LayerPart& part) {
  return layer.borrows_kv ? 0 : layer.kv_planes * part.kv_heads * layer.head_dim;
}

int64_t KvBytesPerToken(const LayerShape& layer, const LayerPart& part, const KvElement& element) {
  if (layer.borrows_kv) return 0;
  int64_t row = layer.head_dim * element.bytes;
  if (element.scale_bytes > 0) {
    const int64_t words = (row + element.scale_bytes - 1) / element.scale_bytes;
    row = (words + 1) * element.scale_bytes;
  }
  return layer.kv_planes * part.kv_heads * row;
}

double VocabularyParameters(const v1::Model& model, int64_t vocabulary_rows) {
  const int64_t width = model.embedding_width() > 0 ? model.embedding_width() : model.hidden();
  return static_cast<double>(vocabulary_rows * width);
}

int64_t LearnedPositions(const v1::Model& model) {
  return model.learned_positions() ? model.max_positions() + model.learned_position_offset() : 0;
}

int64_t PerLayerColumns(const v1::Model& model) {
  return model.per_layer_width() == 0 ? 0 : LayerCount(model) * model.per_layer_width();
}

int64_t PerLayerParameters(const v1::Model& model) {
  // From the embedding; of each layer to it and from it.
  return 3 * PerLayerColumns(model) * model.hidden();
}

}  // namespace tessera
