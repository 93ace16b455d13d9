#include "proto/model/families/latent_config.h"

#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include "proto/model/families/config_parts.h"
#include "proto/model/families/rope_config.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

// The norms of the latent and of the query's vector have it in the published code, whatever
// rms_norm_eps says.
constexpr double kLatentNormEpsilon = 1e-6;

void ReadHeadCount(ConfigDraft& draft, v1::Attention* attention) {
  JsonReader& config = draft.config;
  const int64_t heads = config.Integer("num_attention_heads", 1, kMaxHeads);
  const int64_t of_keys = config.IntegerOr("num_key_value_heads", heads, 1, kMaxHeads);
  if (config.ok() && of_keys != heads) {
    config.Fail("num_key_value_heads",
                StrCat("(", of_keys, ") must be num_attention_heads (", heads,
                       "): each head has keys and values of its own, made from the latent"));
  }
  attention->set_heads(heads);
  attention->set_kv_heads(1);
  if (config.BoolOr("attention_bias", false)) {
    config.Fail("attention_bias", "true is not supported beside latent attention");
  }
  // Follow from the other sizes.
  config.Pass("head_dim");
  config.Pass("qk_head_dim");
}

}  // namespace

void ReadLatentLayer(ConfigDraft& draft, const LatentDefaults& defaults, v1::LayerKind* layer) {
  JsonReader& config = draft.config;
  v1::Attention& attention = *layer->mutable_attention();
  ReadHeadCount(draft, &attention);
  v1::LatentAttention& latent = *attention.mutable_latent();
  const int64_t rank = config.IntegerOr("kv_lora_rank", defaults.rank, 1, kMaxWidth);
  const int64_t rotated = config.IntegerOr("qk_rope_head_dim", 64, 2, kMaxHeads);
  latent.set_rank(rank);
  latent.set_query_rank(config.IntegerOr(
      "q_lora_rank", config.HasKey("q_lora_rank") ? 0 : defaults.query_rank, 1, kMaxWidth));
  latent.set_plain_dim(config.IntegerOr("qk_nope_head_dim", defaults.plain_dim, 1, kMaxHeads));
  latent.set_value_dim(config.IntegerOr("v_head_dim", defaults.value_dim, 1, kMaxHeads));
  latent.set_norm_epsilon(kLatentNormEpsilon);
  attention.set_head_dim(rotated + rank);
  ReadLlamaFfn(draft, "hidden_act", "silu", layer);
  if (!config.ok()) return;
  const double whole = static_cast<double>(latent.plain_dim() + rotated);
  const RopeConfig rope = ReadRope(config, draft.family.rope_theta,
                                   defaults.says_part ? static_cast<double>(rotated) / whole : 0,
                                   defaults.says_part ? latent.plain_dim() + rotated : rotated,
                                   draft.model->max_positions());
  if (config.ok() && rope.rope.rotary_dim() != rotated) {
    config.Fail("partial_rotary_factor", StrCat("rotates ", rope.rope.rotary_dim(),
                                                " dimensions, qk_rope_head_dim says ", rotated));
  }
  *attention.mutable_rope() = rope.rope;
  attention.mutable_rope()->set_neighbour_pairs(draft.family.neighbour_pairs ||
                                                config.BoolOr("rope_interleave", true));
  attention.set_scale(rope.latent_factor * rope.latent_factor / std::sqrt(whole));
  draft.model->set_max_positions(rope.max_positions);
}

void ReadFixedRouting(ConfigDraft& draft, std::string_view scores, std::string_view method) {
  JsonReader& config = draft.config;
  config.IntegerOr("moe_layer_freq", 1, 1, 1);
  for (const auto& [key, known] :
       {std::pair("scoring_func", scores), std::pair("topk_method", method)}) {
    const std::string given = config.StringOr(key, known);
    if (config.ok() && given != known) {
      config.Fail(key, StrCat("'", given, "' is not supported for ", draft.family.architecture,
                              "; only ", known, " is"));
    }
  }
}

}  // namespace tessera
