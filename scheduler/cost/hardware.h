// What the cost model knows of a device and of a link: figures only, no names of machines.
//
// Thread rule: plain values. Units: bytes, seconds, floating-point operations; bandwidth per
// direction. Source: catalogue (deploy/devices) or a measured profile; `estimated` says which.
#pragma once

#include <array>
#include <compare>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::scheduler {

// Types of weights whose products take unlike times.
enum class WeightType { kFloat32, kHalf, kInt8, kInt4, kFp8, kMxfp4 };
inline constexpr int kWeightTypes = 6;
// As descriptions name it ("int4"; kHalf: "bfloat16"); nothing for kFloat32, and of other names.
std::string_view Name(WeightType type);
std::optional<WeightType> WeightTypeNamed(std::string_view name);

// What a byte of weights costs in a product of so many rows, as it was measured.
struct ProductPoint {
  double rows = 0;
  double seconds_per_byte = 0;

  bool operator==(const ProductPoint&) const = default;
};
// By rising rows, and so by cost; empty: not measured.
using ProductPoints = std::vector<ProductPoint>;

// Seconds a byte for any number of rows: even between two points, with the rows beyond the last.
// `points` has one at least.
double SecondsPerByte(const ProductPoints& points, double rows);

struct DeviceSpec {
  std::string kind;                    // catalogue name, as shown to users
  double memory_bytes = 0;             // what the device reports; vendor "GB" are GiB
  double memory_bytes_per_second = 0;  // peak
  double flops_per_second = 0;         // peak, dense, of the weights' dtype with fp32 accumulation
  // What of the peaks a forward pass reaches, and what it loses besides; fitted or measured.
  double compute_efficiency = 1;      // e_c, of flops_per_second
  double memory_efficiency = 1;       // e_m, of memory_bytes_per_second
  double layer_overhead_seconds = 0;  // per layer and step (launches)
  double step_overhead_seconds = 0;   // per step and stage, whatever its layers
  // Its kernels multiply the rows that decode while they read the weights, as those of CPUs do;
  // else one comes after the other, as measured GPUs have it.
  bool hides_decode = false;
  double kv_codec_bytes_per_second = 0;  // of raw KV, the slower of both ways; 0: not measured
  bool estimated = true;                 // false: measured on the user's device
  // By WeightType; where it was measured it stands for bandwidth and FLOP/s in products.
  std::array<ProductPoints, kWeightTypes> products;

  const ProductPoints& products_of(WeightType type) const {
    return products[static_cast<size_t>(type)];
  }

  double effective_flops() const { return compute_efficiency * flops_per_second; }
  double effective_bandwidth() const { return memory_efficiency * memory_bytes_per_second; }
};

struct LinkSpec {
  double bytes_per_second = 0;  // beta, per direction
  double latency_seconds = 0;   // alpha, per message round
  // Incast (GenModel's w_t and epsilon): senders beyond the threshold slow each byte down.
  double incast_threshold = 1e9;
  double incast_seconds_per_byte = 0;  // per sender beyond the threshold

  auto operator<=>(const LinkSpec&) const = default;
};

}  // namespace tessera::scheduler
