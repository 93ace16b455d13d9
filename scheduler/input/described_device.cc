#include "scheduler/input/described_device.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "scheduler/input/runtime_reserve.h"

namespace tessera::scheduler {
namespace {

bool Measures(const v1::MeasuredProfile& profile) {
  return profile.memory_read_bytes_per_second() > 0 || profile.prefill_efficiency() > 0 ||
         profile.decode_efficiency() > 0 || profile.step_overhead_seconds() > 0 ||
         profile.kv_codec_bytes_per_second() > 0 || !profile.products().empty();
}

std::string WhyNoProduct(const v1::ProductRate& product) {
  if (!WeightTypeNamed(product.weights()).has_value()) {
    return absl::StrCat("weights \"", product.weights(),
                        "\" are none of bfloat16, float16, int8, int4, fp8, mxfp4");
  }
  if (product.rows() < 1) return "rows must be at least 1";
  const double rate = product.read_bytes_per_second();
  return rate > 0 && std::isfinite(rate) ? "" : "read must be above 0 bytes per second";
}

// The part of the rate of its products that a whole pass reaches, where nobody says it: that of
// `tessera profile`.
constexpr double kPartOfProducts = 0.9;

// What a forward pass loses counts for what rows cost beyond the first, as prefill_efficiency is
// meant; reading alone is measured as it is.
void AddProducts(const v1::MeasuredProfile& profile, DeviceSpec* spec) {
  const double efficiency =
      profile.prefill_efficiency() > 0 ? profile.prefill_efficiency() : kPartOfProducts;
  for (const v1::ProductRate& product : profile.products()) {
    spec->products[static_cast<size_t>(*WeightTypeNamed(product.weights()))].push_back(
        {static_cast<double>(product.rows()), 1 / product.read_bytes_per_second()});
  }
  for (ProductPoints& points : spec->products) {
    std::sort(points.begin(), points.end(),
              [](const auto& a, const auto& b) { return a.rows < b.rows; });
    const double one_row = points.empty() ? 0 : points.front().seconds_per_byte;
    double least = 0;
    for (ProductPoint& point : points) {
      // More rows take no less time, whatever the clock says.
      least = std::max(least, one_row + (point.seconds_per_byte - one_row) / efficiency);
      point.seconds_per_byte = least;
    }
  }
}

}  // namespace

std::string WhyNoProfile(const v1::MeasuredProfile& profile) {
  if (profile.prefill_efficiency() > 1 || profile.decode_efficiency() > 1)
    return "prefill_efficiency and decode_efficiency are parts of the peaks: at most 1";
  if (!Measures(profile)) {
    return "has no measured value; give memory_read, prefill_efficiency, decode_efficiency, "
           "step_overhead, kv_codec or products, or leave it out";
  }
  for (int i = 0; i < profile.products_size(); ++i) {
    const std::string wrong = WhyNoProduct(profile.products(i));
    if (!wrong.empty()) return absl::StrCat("products[", i, "]: ", wrong);
  }
  for (const v1::ProductRate& product : profile.products()) {
    const bool one_row =
        std::any_of(profile.products().begin(), profile.products().end(), [&](const auto& other) {
          return WeightTypeNamed(other.weights()) == WeightTypeNamed(product.weights()) &&
                 other.rows() == 1;
        });
    if (!one_row)
      return absl::StrCat("products: give the rate of ", product.weights(), " with 1 row");
  }
  return "";
}

DeviceSpec DescribedDevice(const v1::DeviceKind& kind, const v1::DeviceGroup& group) {
  DeviceSpec spec;
  spec.kind = kind.name();
  spec.memory_bytes =
      static_cast<double>(group.memory_bytes() > 0 ? group.memory_bytes() : kind.memory_bytes());
  spec.memory_bytes_per_second = kind.memory_bandwidth_bytes_per_second();
  spec.flops_per_second = kind.dense_flops_per_second();
  spec.compute_efficiency =
      kind.prefill_efficiency() > 0 ? kind.prefill_efficiency() : kDefaultComputeEfficiency;
  spec.memory_efficiency =
      kind.decode_efficiency() > 0 ? kind.decode_efficiency() : kDefaultMemoryEfficiency;
  spec.layer_overhead_seconds = kind.layer_overhead_seconds();
  spec.hides_decode = IsCpuKind(kind.name());
  spec.estimated = kind.efficiency_source().empty();
  if (!group.has_profile()) return spec;
  const v1::MeasuredProfile& profile = group.profile();
  if (profile.memory_read_bytes_per_second() > 0) {
    spec.memory_bytes_per_second = profile.memory_read_bytes_per_second();
    spec.memory_efficiency = 1;
  }
  if (profile.prefill_efficiency() > 0) spec.compute_efficiency = profile.prefill_efficiency();
  if (profile.decode_efficiency() > 0) spec.memory_efficiency = profile.decode_efficiency();
  spec.kv_codec_bytes_per_second = profile.kv_codec_bytes_per_second();
  if (profile.step_overhead_seconds() > 0) {
    spec.step_overhead_seconds = profile.step_overhead_seconds();
    spec.layer_overhead_seconds = 0;
  }
  AddProducts(profile, &spec);
  const bool memory = profile.memory_read_bytes_per_second() > 0 || profile.decode_efficiency() > 0;
  if (memory && profile.prefill_efficiency() > 0) spec.estimated = false;
  return spec;
}

}  // namespace tessera::scheduler
