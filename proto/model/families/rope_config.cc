#include "proto/model/families/rope_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

constexpr double kMaxTheta = 1e12;
constexpr double kMaxFactor = 1e6;
constexpr int64_t kMaxPositions = int64_t{1} << 30;

v1::RopeScalingKind ScalingKind(JsonReader& scaling, const char* key, const std::string& type) {
  if (type.empty() || type == "default") return v1::ROPE_SCALING_KIND_UNSPECIFIED;
  if (type == "linear") return v1::ROPE_SCALING_KIND_LINEAR;
  if (type == "dynamic") return v1::ROPE_SCALING_KIND_DYNAMIC;
  if (type == "llama3") return v1::ROPE_SCALING_KIND_LLAMA3;
  // Phi-3's first files have other names for longrope; "mrope" differs from no scaling for images
  // alone.
  if (type == "longrope" || type == "su" || (type == "yarn" && scaling.Has("short_factor"))) {
    return v1::ROPE_SCALING_KIND_LONGROPE;
  }
  if (type == "yarn") return v1::ROPE_SCALING_KIND_YARN;
  if (type == "proportional") return v1::ROPE_SCALING_KIND_PROPORTIONAL;
  if (type == "mrope") return v1::ROPE_SCALING_KIND_UNSPECIFIED;
  scaling.Fail(key, StrCat("'", type,
                           "' is not supported; known are default, linear, dynamic, llama3, yarn, "
                           "longrope and proportional"));
  return v1::ROPE_SCALING_KIND_UNSPECIFIED;
}

// linear and dynamic serve factor times the positions that the configuration names; for llama3 it
// names the stretched length already.
void StretchPositions(JsonReader& scaling, RopeConfig* read) {
  const double positions =
      std::floor(static_cast<double>(read->max_positions) * read->rope.factor());
  if (positions > static_cast<double>(kMaxPositions)) {
    scaling.Fail("factor", StrCat("stretches the context to more than ", kMaxPositions, " tokens"));
    return;
  }
  read->max_positions = static_cast<int64_t>(positions);
}

// Length the model was trained at. The key of the configuration's top level wins over the one
// beside the scaling; null: it does not count, as where each type of layers has a scaling of its
// own.
int64_t OriginalPositions(JsonReader* top, JsonReader& scaling, int64_t fallback) {
  constexpr const char* kKey = "original_max_position_embeddings";
  JsonReader& reader = top != nullptr && top->Has(kKey) ? *top : scaling;
  return reader.IntegerOr(kKey, fallback, 1, kMaxPositions);
}

// YaRN (arXiv 2309.00071), as transformers' _compute_yarn_parameters reads it.
void ReadYarn(JsonReader* top, JsonReader& scaling, RopeConfig* read) {
  v1::Rope& rope = read->rope;
  rope.set_original_max_positions(OriginalPositions(top, scaling, read->max_positions));
  const double stretched =
      static_cast<double>(read->max_positions) / static_cast<double>(rope.original_max_positions());
  rope.set_factor(scaling.NumberOr("factor", stretched, 1.0, kMaxFactor));
  // A model that is trained with the ramp may name the stretched length or the original one.
  read->max_positions =
      std::max(read->max_positions,
               static_cast<int64_t>(
                   std::floor(rope.factor() * static_cast<double>(rope.original_max_positions()))));
  const auto or_default = [](double value, double fallback) {
    return value == 0 ? fallback : value;
  };
  rope.set_beta_fast(or_default(scaling.NumberOr("beta_fast", 0, 0, kMaxFactor), 32));
  rope.set_beta_slow(or_default(scaling.NumberOr("beta_slow", 0, 0, kMaxFactor), 1));
  rope.set_ramp_not_truncated(!scaling.BoolOr("truncate", true));
  const double grown = rope.factor() <= 1 ? 0 : std::log(rope.factor());
  const auto scale = [grown](double mscale) { return 0.1 * mscale * grown + 1; };
  const double mscale = scaling.NumberOr("mscale", 0, 0, kMaxFactor);
  const double all_dim = scaling.NumberOr("mscale_all_dim", 0, 0, kMaxFactor);
  const double usual = mscale != 0 && all_dim != 0 ? scale(mscale) / scale(all_dim) : scale(1);
  rope.set_attention_factor(scaling.NumberOr("attention_factor", usual, 1e-6, kMaxFactor));
  read->latent_factor = scale(all_dim);
}

// LongRoPE (arXiv 2402.13753), as Phi-3 writes it.
void ReadLongRope(JsonReader* top, JsonReader& scaling, RopeConfig* read) {
  v1::Rope& rope = read->rope;
  rope.set_original_max_positions(OriginalPositions(top, scaling, read->max_positions));
  const struct {
    const char* key;
    google::protobuf::RepeatedField<double>* factors;
  } lists[] = {{"short_factor", rope.mutable_short_factors()},
               {"long_factor", rope.mutable_long_factors()}};
  for (const auto& list : lists) {
    for (const double factor : scaling.Numbers(list.key, 1e-6, kMaxFactor)) {
      list.factors->Add(factor);
    }
    if (list.factors->size() == rope.rotary_dim() / 2) continue;
    scaling.Fail(list.key, StrCat("has ", list.factors->size(), " numbers; ", rope.rotary_dim() / 2,
                                  " pairs are rotated"));
  }
  const auto original = static_cast<double>(rope.original_max_positions());
  const double stretched = scaling.NumberOr(
      "factor", static_cast<double>(read->max_positions) / original, 0, kMaxFactor);
  const double usual = stretched <= 1 ? 1 : std::sqrt(1 + std::log(stretched) / std::log(original));
  rope.set_attention_factor(scaling.NumberOr("attention_factor", usual, 1e-6, kMaxFactor));
}

// Whole heads turn by their frequencies, of which only the first `part` is not 0 (Gemma 4).
void SetTurningPart(int64_t head_dim, double part, double factor, v1::Rope* rope) {
  rope->set_scaling(v1::ROPE_SCALING_KIND_PROPORTIONAL);
  rope->set_rotary_dim(static_cast<int32_t>(head_dim));
  rope->set_turning_pairs(static_cast<int32_t>(part * static_cast<double>(head_dim) / 2));
  rope->set_factor(factor);
}

const char* TypeKey(const JsonReader& scaling) {
  return scaling.Has("rope_type") ? "rope_type" : "type";
}

bool IsProportional(JsonReader& scaling) {
  return scaling.StringOr(TypeKey(scaling), "") == "proportional";
}

void ReadScaling(JsonReader* top, JsonReader& scaling, RopeConfig* read) {
  v1::Rope& rope = read->rope;
  const char* key = TypeKey(scaling);
  rope.set_scaling(ScalingKind(scaling, key, scaling.StringOr(key, "")));
  if (!scaling.ok() || rope.scaling() == v1::ROPE_SCALING_KIND_UNSPECIFIED) return;
  if (rope.scaling() == v1::ROPE_SCALING_KIND_YARN) return ReadYarn(top, scaling, read);
  if (rope.scaling() == v1::ROPE_SCALING_KIND_LONGROPE) return ReadLongRope(top, scaling, read);

  rope.set_factor(scaling.Number("factor", 1.0, kMaxFactor));
  if (rope.scaling() == v1::ROPE_SCALING_KIND_LLAMA3) {
    rope.set_low_frequency_factor(scaling.Number("low_freq_factor", 1e-6, kMaxFactor));
    rope.set_high_frequency_factor(scaling.Number("high_freq_factor", 1e-6, kMaxFactor));
    rope.set_original_max_positions(OriginalPositions(top, scaling, read->max_positions));
    if (rope.high_frequency_factor() < rope.low_frequency_factor()) {
      scaling.Fail("high_freq_factor", "must not be below low_freq_factor");
    }
    return;
  }
  // Dynamic scaling sets in where the configuration's own length ends, whatever else it names.
  rope.set_original_max_positions(read->max_positions);
  if (rope.scaling() == v1::ROPE_SCALING_KIND_DYNAMIC && rope.rotary_dim() <= 2) {
    scaling.Fail(key, "'dynamic' needs heads wider than 2");
  }
  StretchPositions(scaling, read);
}

// How much of a head is rotated.
class RotaryPart {
 public:
  RotaryPart(double usual, int64_t head_dim) : usual_(usual), head_dim_(head_dim) {}

  void ReadProportional(JsonReader& reader, v1::Rope* rope) const {
    const double part = reader.NumberOr("partial_rotary_factor", 1.0, 0.0, 1.0);
    SetTurningPart(head_dim_, part, reader.NumberOr("factor", 1.0, 1e-6, kMaxFactor), rope);
    if (head_dim_ % 2 != 0) {
      reader.Fail("head_dim", StrCat("must be even to be rotated, not ", head_dim_));
    }
  }

  // Where `reader` says nothing, what was read before stays.
  void Read(JsonReader& reader, v1::Rope* rope) const {
    constexpr const char* kKey = "partial_rotary_factor";
    const double before =
        rope->rotary_dim() == 0 ? (usual_ == 0 ? 1 : usual_) : Share(rope->rotary_dim());
    const double part = reader.NumberOr(kKey, before, 0.0, 1.0);
    if (usual_ == 0 && part != 1.0) reader.Fail(kKey, "other than 1 is not supported");
    const auto dimensions = static_cast<int64_t>(static_cast<double>(head_dim_) * part + 1e-6);
    if (usual_ == 0 && dimensions % 2 != 0) {
      reader.Fail("head_dim", StrCat("must be even to be rotated, not ", dimensions));
    } else if (dimensions < 2 || dimensions % 2 != 0) {
      reader.Fail(kKey,
                  StrCat("leaves ", dimensions, " dimensions of a head to be rotated; it must ",
                         "be an even number of them, at least 2"));
    }
    rope->set_rotary_dim(static_cast<int32_t>(dimensions));
  }

 private:
  double Share(int64_t dimensions) const {
    return static_cast<double>(dimensions) / static_cast<double>(head_dim_);
  }

  const double usual_;  // 0: all, always
  const int64_t head_dim_;
};

// Whether `key` says anything: transformers passes over null and over an empty object.
bool HoldsRope(JsonReader& config, const char* key) {
  if (!config.Has(key)) return false;
  if (!config.At(key).is_object()) {
    config.Fail(key, "must be an object");
    return false;
  }
  return !config.At(key).empty();
}

// Expects the rope_theta of the top level, or the family's, in read->rope. `top`: as above.
void ReadRopeFrom(JsonReader& config, const char* key, const RotaryPart& part, JsonReader* top,
                  RopeConfig* read) {
  v1::Rope& rope = read->rope;
  for (const auto& [name, value] : config.At(key).items()) {
    if (value.is_object()) {
      return config.Fail(StrCat(key, ".", name), "sets rotations per layer type: not supported");
    }
  }
  JsonReader scaling = config.Nested(key);
  const double theta = scaling.NumberOr("rope_theta", rope.theta(), 1.0, kMaxTheta);
  if (config.Has("rope_theta") && theta != rope.theta()) {
    scaling.Fail("rope_theta", StrCat("is ", theta, ", rope_theta at the top level is ",
                                      rope.theta(), ": remove the one that is not meant"));
  }
  rope.set_theta(theta);
  if (IsProportional(scaling)) {
    part.ReadProportional(scaling, &rope);
  } else {
    part.Read(scaling, &rope);
    ReadScaling(top, scaling, read);
  }
  config.Adopt(scaling.status());
}

bool IsSameRope(const RopeConfig& one, const RopeConfig& other) {
  return one.rope.SerializeAsString() == other.rope.SerializeAsString() &&
         one.max_positions == other.max_positions;
}

// transformers takes rope_scaling alone then, without the rope_theta of rope_parameters, which is
// hardly what somebody meant who added it.
void RefuseTwoRopes(JsonReader& config, const RopeConfig& by_scaling) {
  constexpr size_t kMaxShown = 300;
  const std::string scaling = config.At("rope_scaling").dump(-1, ' ', true).substr(0, kMaxShown);
  const std::string parameters =
      config.At("rope_parameters").dump(-1, ' ', true).substr(0, kMaxShown);
  config.Fail("rope_scaling",
              StrCat(scaling, " (with rope_theta ", by_scaling.rope.theta(),
                     ") says something else than rope_parameters ", parameters,
                     ": write what is meant into rope_parameters, with rope_theta, and remove "
                     "rope_scaling"));
}

}  // namespace

RopeConfig ReadRopeOfType(JsonReader& config, const LayerTypeRope& type, int64_t head_dim,
                          int64_t max_positions) {
  RopeConfig read = {.rope = {}, .max_positions = max_positions};
  const RotaryPart part(0, head_dim);
  part.Read(config, &read.rope);
  read.rope.set_theta(config.NumberOr(type.theta_key, type.theta, 1.0, kMaxTheta));
  const bool parameters = HoldsRope(config, "rope_parameters");
  const bool scaling = HoldsRope(config, "rope_scaling");
  if (!config.ok()) return read;
  if (parameters && scaling) {
    config.Fail("rope_scaling", "is given beside rope_parameters: write what is meant into these");
  } else if (parameters) {
    JsonReader types = config.Nested("rope_parameters");
    if (HoldsRope(types, type.layer_type)) {
      ReadRopeFrom(types, type.layer_type, part, nullptr, &read);
    } else if (types.Has("rope_type") || types.Has("type") || types.Has("rope_theta")) {
      types.Fail(type.layer_type, "is missing: the family rotates each type of layers otherwise");
    }
    config.Adopt(types.status());
  } else if (scaling && type.scaled) {
    ReadRopeFrom(config, "rope_scaling", part, nullptr, &read);
  } else if (!parameters && type.turning_part != 0) {
    SetTurningPart(head_dim, type.turning_part, 1.0, &read.rope);
  }
  read.max_positions = max_positions;
  return read;
}

void RequireRope(JsonReader& config) {
  if (HoldsRope(config, "rope_parameters") || HoldsRope(config, "rope_scaling")) return;
  if (config.file().ends_with(".gguf")) return;
  config.Fail(
      "rope_parameters",
      "is missing: transformers takes a yarn of its own for this class then; write down the "
      "rotation that is meant");
}

RopeConfig ReadRope(JsonReader& config, double default_theta, double partial_rotary,
                    int64_t head_dim, int64_t max_positions) {
  RopeConfig read = {.rope = {}, .max_positions = max_positions};
  config.Pass("original_max_position_embeddings");  // without a scaling that begins there
  const RotaryPart part(partial_rotary, head_dim);
  part.Read(config, &read.rope);
  read.rope.set_theta(config.NumberOr("rope_theta", default_theta, 1.0, kMaxTheta));

  const bool parameters = HoldsRope(config, "rope_parameters");
  const bool scaling = HoldsRope(config, "rope_scaling");
  if (!config.ok() || (!parameters && !scaling)) return read;
  RopeConfig other = read;
  ReadRopeFrom(config, scaling ? "rope_scaling" : "rope_parameters", part, &config, &read);
  if (!config.ok() || !parameters || !scaling) return read;
  ReadRopeFrom(config, "rope_parameters", part, &config, &other);
  if (config.ok() && !IsSameRope(read, other)) RefuseTwoRopes(config, read);
  return read;
}

}  // namespace tessera
