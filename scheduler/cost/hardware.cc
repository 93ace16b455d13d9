#include "scheduler/cost/hardware.h"

#include <algorithm>
#include <utility>

namespace tessera::scheduler {
namespace {

constexpr std::pair<WeightType, std::string_view> kNames[] = {{WeightType::kHalf, "bfloat16"},
                                                              {WeightType::kInt8, "int8"},
                                                              {WeightType::kInt4, "int4"},
                                                              {WeightType::kFp8, "fp8"},
                                                              {WeightType::kMxfp4, "mxfp4"}};

}  // namespace

std::string_view Name(WeightType type) {
  for (const auto& [known, name] : kNames) {
    if (known == type) return name;
  }
  return "";
}

std::optional<WeightType> WeightTypeNamed(std::string_view name) {
  if (name == "float16") return WeightType::kHalf;
  for (const auto& [type, known] : kNames) {
    if (known == name) return type;
  }
  return std::nullopt;
}

double SecondsPerByte(const ProductPoints& points, double rows) {
  const auto next =
      std::find_if(points.begin(), points.end(), [&](const auto& p) { return p.rows >= rows; });
  if (next == points.begin()) return next->seconds_per_byte;
  const ProductPoint& before = *std::prev(next);
  if (next == points.end()) return before.seconds_per_byte * rows / before.rows;
  return before.seconds_per_byte + (next->seconds_per_byte - before.seconds_per_byte) *
                                       (rows - before.rows) / (next->rows - before.rows);
}

}  // namespace tessera::scheduler
