#include "proto/model/families/rope_config.h"

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
  scaling.Fail(key, StrCat("'", type,
                           "' is not supported; known are default, linear, dynamic and "
                           "llama3"));
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

void ReadScaling(JsonReader& scaling, RopeConfig* read) {
  v1::Rope& rope = read->rope;
  const char* key = scaling.Has("rope_type") ? "rope_type" : "type";
  rope.set_scaling(ScalingKind(scaling, key, scaling.StringOr(key, "")));
  if (scaling.NumberOr("partial_rotary_factor", 1.0, 0.0, 1.0) != 1.0) {
    scaling.Fail("partial_rotary_factor", "other than 1 is not supported");
  }
  if (!scaling.ok() || rope.scaling() == v1::ROPE_SCALING_KIND_UNSPECIFIED) return;

  rope.set_factor(scaling.Number("factor", 1.0, kMaxFactor));
  if (rope.scaling() == v1::ROPE_SCALING_KIND_LLAMA3) {
    rope.set_low_frequency_factor(scaling.Number("low_freq_factor", 1e-6, kMaxFactor));
    rope.set_high_frequency_factor(scaling.Number("high_freq_factor", 1e-6, kMaxFactor));
    rope.set_original_max_positions(scaling.IntegerOr("original_max_position_embeddings",
                                                      read->max_positions, 1, kMaxPositions));
    if (rope.high_frequency_factor() <= rope.low_frequency_factor()) {
      scaling.Fail("high_freq_factor", "must be above low_freq_factor");
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

// Whether `key` says anything: transformers passes over null and over an empty object.
bool HoldsRope(JsonReader& config, const char* key) {
  if (!config.Has(key)) return false;
  if (!config.At(key).is_object()) {
    config.Fail(key, "must be an object");
    return false;
  }
  return !config.At(key).empty();
}

// Expects the rope_theta of the top level, or the family's, in read->rope.
void ReadRopeFrom(JsonReader& config, const char* key, RopeConfig* read) {
  v1::Rope& rope = read->rope;
  const nlohmann::json& object = config.At(key);
  for (const auto& [name, value] : object.items()) {
    if (value.is_object()) {
      return config.Fail(StrCat(key, ".", name), "sets rotations per layer type: not supported");
    }
  }
  JsonReader scaling(object, config.file(), StrCat(key, "."));
  const double theta = scaling.NumberOr("rope_theta", rope.theta(), 1.0, kMaxTheta);
  if (config.Has("rope_theta") && theta != rope.theta()) {
    scaling.Fail("rope_theta", StrCat("is ", theta, ", rope_theta at the top level is ",
                                      rope.theta(), ": remove the one that is not meant"));
  }
  rope.set_theta(theta);
  ReadScaling(scaling, read);
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

RopeConfig ReadRope(JsonReader& config, double default_theta, int64_t head_dim,
                    int64_t max_positions) {
  RopeConfig read = {.rope = {}, .max_positions = max_positions};
  read.rope.set_rotary_dim(static_cast<int32_t>(head_dim));
  if (head_dim % 2 != 0) {
    config.Fail("head_dim", StrCat("must be even to be rotated, not ", head_dim));
  }
  if (config.NumberOr("partial_rotary_factor", 1.0, 0.0, 1.0) != 1.0) {
    config.Fail("partial_rotary_factor", "other than 1 is not supported");
  }
  read.rope.set_theta(config.NumberOr("rope_theta", default_theta, 1.0, kMaxTheta));

  const bool parameters = HoldsRope(config, "rope_parameters");
  const bool scaling = HoldsRope(config, "rope_scaling");
  if (!config.ok() || (!parameters && !scaling)) return read;
  RopeConfig other = read;
  ReadRopeFrom(config, scaling ? "rope_scaling" : "rope_parameters", &read);
  if (!config.ok() || !parameters || !scaling) return read;
  ReadRopeFrom(config, "rope_parameters", &other);
  if (config.ok() && !IsSameRope(read, other)) RefuseTwoRopes(config, read);
  return read;
}

}  // namespace tessera
