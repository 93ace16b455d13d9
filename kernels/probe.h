// What a device really does per second: bytes read from its memory, and multiply-adds of its
// linears.
//
// Measured through kernels/ops.h alone, so with the threads and kernels that serve requests. Blocks
// for about a second, or for four windows; not to be run while the device serves. Each rate is the
// best of several runs: what the device can do when nobody disturbs it. Devices that share memory
// or cores are measured at the same time, in windows: each rate is then a mean. Units: bytes per
// second; floating-point operations per second, two per multiply-add.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"

namespace tessera::kernels {

struct ProbeOptions {
  int64_t buffer_bytes = int64_t{512} << 20;  // read from end to end; more than any cache holds
  // The bytes are weights of a product of one row; else rows whose largest value is looked for.
  bool reads_weights = false;
  int64_t matrix_size = 2048;  // square weights of the compute runs
  int64_t rows = 512;          // activation rows of the compute runs
  int runs = 3;
  int calls = 1;          // of a run, enqueued behind each other, whose time is divided
  bool products = false;  // measures DeviceRates::products as well, for some seconds more
  // Above 0: a rate is the mean over the second half of a window of so many seconds, one window
  // after the other from the start of the probe. Probes that start together thus read memory at the
  // same time, and multiply at the same time. `runs` is not used.
  double window_seconds = 0;
};

// For a GPU: enough for all its multiprocessors, and for far longer than a launch takes.
inline constexpr ProbeOptions kGpuProbe = {.buffer_bytes = int64_t{1} << 30,
                                           .reads_weights = true,
                                           .matrix_size = 8192,
                                           .rows = 4096,
                                           .calls = 8};

// The least that a device must have left to be measured: smaller buffers say nothing.
inline constexpr int64_t kMinProbeBytes = int64_t{2} << 20;

// Weights of one type, read while they are multiplied with so many rows of bf16.
struct ProductRate {
  std::string_view weights;  // as ProductRate of proto/cluster.proto names it
  int64_t rows = 0;
  double read_bytes_per_second = 0;  // codes and scales
};

struct DeviceRates {
  double read_bytes_per_second = 0;
  double f32_flops_per_second = 0;   // f32 weights and activations
  double bf16_flops_per_second = 0;  // bf16 weights and activations
  double int8_flops_per_second = 0;  // int8 weights, bf16 activations
  int64_t read_buffer_bytes = 0;     // that were read from end to end
  // With one row, few and options.rows, by type; types that the device does not compute with, or
  // has no room for, are left out. In windows each takes a quarter of one.
  std::vector<ProductRate> products;
};

// Where the device has less memory left than the buffers take they are halved until they fit: what
// has little memory reads its weights through the same caches. ResourceExhausted where it has not
// even kMinProbeBytes left.
absl::StatusOr<DeviceRates> ProbeDevice(Device& device, const ProbeOptions& options = {});

// Which products a look measures.
struct ProductsLook {
  // No type of weights is begun once these are over: a type that is begun is measured whole. 0:
  // none.
  double max_seconds = std::numeric_limits<double>::infinity();
  // Whether a type of weights, by ProductRate::weights, is left out; empty: none is.
  std::function<bool(std::string_view)> is_known = nullptr;
};

// DeviceRates::products alone: for a look at the start of a device. Errors as of ProbeDevice, but
// for a lack of memory, which leaves products out.
absl::StatusOr<std::vector<ProductRate>> ProbeProducts(Device& device, const ProbeOptions& options,
                                                       const ProductsLook& look);

// Bytes read per second alone: for a look at every start, in some tenths of a second. Where the
// device has less room than the buffer takes, from one half as large, and so on; ResourceExhausted
// where it has none.
absl::StatusOr<double> ProbeReadRate(Device& device,
                                     const ProbeOptions& options = {
                                         .buffer_bytes = int64_t{128} << 20, .runs = 2});

}  // namespace tessera::kernels
