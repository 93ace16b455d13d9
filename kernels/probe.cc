#include "kernels/probe.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/ops.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kRowFloats = 1 << 18;
constexpr int64_t kRowBytes = kRowFloats * static_cast<int64_t>(sizeof(float));
constexpr int64_t kMinMatrixSize = 128;

using Enqueue = std::function<absl::Status()>;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// One of so many calls, which are waited for together.
absl::StatusOr<double> SecondsOfCall(Stream& stream, int calls, const Enqueue& enqueue) {
  const double start = Now();
  for (int call = 0; call < calls; ++call) {
    if (absl::Status status = enqueue(); !status.ok()) return status;
  }
  if (absl::Status status = stream.Synchronize(); !status.ok()) return status;
  return std::max((Now() - start) / calls, 1e-9);
}

// Seconds of the fastest of the runs; the first, untimed, run warms up. Where calls are slow, since
// somebody else keeps the cores busy, fewer must do.
absl::StatusOr<double> BestSeconds(Stream& stream, const ProbeOptions& options,
                                   const Enqueue& enqueue) {
  constexpr double kEnoughSeconds = 2;
  const double begin = Now();
  double best = 0;
  for (int run = 0; run <= 1 || (run <= options.runs && Now() - begin < kEnoughSeconds); ++run) {
    const absl::StatusOr<double> seconds = SecondsOfCall(stream, options.calls, enqueue);
    if (!seconds.ok()) return seconds;
    if (run == 1 || (run > 1 && *seconds < best)) best = *seconds;
  }
  return best;
}

// How the calls of a probe are timed. One thread.
class Timer {
 public:
  explicit Timer(const ProbeOptions& options) : options_(options), window_ends_(Now()) {}

  // The next window, of one rate, begins with the end of the one before.
  void NextWindow(double part = 1) {
    window_seconds_ = part * options_.window_seconds;
    window_ends_ += window_seconds_;
  }

  absl::StatusOr<double> Seconds(Stream& stream, const Enqueue& enqueue) const {
    if (options_.window_seconds <= 0) return BestSeconds(stream, options_, enqueue);
    const double half = window_ends_ - window_seconds_ / 2;
    double sum = 0;
    int calls = 0;
    // A call that ends late is measured all the same.
    for (bool counts = false; calls == 0 || Now() < window_ends_;) {
      const absl::StatusOr<double> seconds = SecondsOfCall(stream, options_.calls, enqueue);
      if (!seconds.ok()) return seconds;
      if (counts) {
        sum += *seconds;
        ++calls;
      }
      counts = Now() >= half;
    }
    return sum / calls;
  }

 private:
  const ProbeOptions options_;
  double window_seconds_ = 0;
  double window_ends_;
};

// Numbers of 16 bits each: from 1 to 2 of either sign in bfloat16, alike in float16; in float32 two
// of them are one. GPUs multiply zeros at higher clocks than what a model has.
std::vector<uint16_t> Numbers(int64_t count) {
  std::vector<uint16_t> numbers(count);
  uint32_t state = 1;
  for (uint16_t& number : numbers) {
    state = state * 1664525u + 1013904223u;
    number = static_cast<uint16_t>(0x3f80u | (state >> 16 & 0x807fu));
  }
  return numbers;
}

// Device memory that really is there: untouched pages would all be the same page of zeros.
absl::StatusOr<Buffer> AllocateFilled(Device& device, Stream& stream, int64_t size_bytes) {
  auto buffer = device.Allocate(size_bytes);
  if (!buffer.ok()) return buffer;
  const int64_t piece_bytes = std::min<int64_t>(size_bytes, 4 << 20);
  const std::vector<uint16_t> numbers = Numbers((piece_bytes + 1) / 2);
  for (int64_t offset = 0; offset < size_bytes; offset += piece_bytes) {
    const int64_t piece = std::min(piece_bytes, size_bytes - offset);
    absl::Status status = stream.CopyToDevice(buffer->data() + offset, numbers.data(), piece);
    if (!status.ok()) return status;
  }
  if (absl::Status status = stream.Synchronize(); !status.ok()) return status;
  return buffer;
}

// Halves `size` until `measure`, which uses it, has room; not below `least`.
absl::StatusOr<double> WithRoom(int64_t& size, int64_t least,
                                const std::function<absl::StatusOr<double>()>& measure) {
  for (;; size /= 2) {
    absl::StatusOr<double> rate = measure();
    if (!absl::IsResourceExhausted(rate.status()) || size / 2 < least) return rate;
  }
}

// Bytes of the weights of `spec` that a product of so many rows reads per second.
absl::StatusOr<double> ProductReadRate(Device& device, Stream& stream, const Timer& timer,
                                       const LinearSpec& spec, int64_t rows, DType activation) {
  const int64_t bytes = device.ops().PackedWeightBytes(spec);
  auto memory = AllocateFilled(device, stream, bytes);
  if (!memory.ok()) return memory.status();
  const int64_t element_bytes = SizeInBytes(activation);
  auto in = AllocateFilled(device, stream, rows * spec.in_features * element_bytes);
  if (!in.ok()) return in.status();
  auto out = device.Allocate(rows * spec.out_features * element_bytes);
  if (!out.ok()) return out.status();
  const int64_t workspace_bytes = device.ops().LinearWorkspaceBytes(spec, rows, activation);
  auto workspace = device.Allocate(std::max<int64_t>(workspace_bytes, 64));
  if (!workspace.ok()) return workspace.status();
  const PackedWeights weights = {.spec = spec, .data = memory->data()};
  const LinearArgs args = {
      .out = TensorView(out->data(), activation, {rows, spec.out_features}),
      .in = TensorView(in->data(), activation, {rows, spec.in_features}),
      .weights = &weights,
      .workspace = TensorView(workspace->data(), DType::kI8, {workspace->size_bytes()})};
  const auto seconds = timer.Seconds(stream, [&] { return device.ops().Linear(args, stream); });
  if (!seconds.ok()) return seconds;
  return static_cast<double>(bytes) / *seconds;
}

constexpr int64_t kReadInputs = 8192;  // of weights that are read from end to end

// A product of one row with so many weights: what a GPU is best at reading.
absl::StatusOr<double> WeightsReadRate(Device& device, Stream& stream, const ProbeOptions& options,
                                       const Timer& timer) {
  const int64_t columns = std::max<int64_t>(1, options.buffer_bytes / (2 * kReadInputs));
  return ProductReadRate(
      device, stream, timer,
      {.in_features = kReadInputs, .out_features = columns, .weight_dtype = DType::kBF16}, 1,
      DType::kF32);
}

// The largest value of each row: reads everything once and writes next to nothing.
absl::StatusOr<double> RowsReadRate(Device& device, Stream& stream, const ProbeOptions& options,
                                    const Timer& timer) {
  const int64_t rows = std::max<int64_t>(1, options.buffer_bytes / kRowBytes);
  auto in = AllocateFilled(device, stream, rows * kRowBytes);
  if (!in.ok()) return in.status();
  auto out = device.Allocate(rows * static_cast<int64_t>(sizeof(float) + sizeof(int32_t)));
  if (!out.ok()) return out.status();
  const TopKArgs args = {
      .values = TensorView(out->data(), DType::kF32, {rows, 1}),
      .indices = TensorView(out->data() + rows * sizeof(float), DType::kI32, {rows, 1}),
      .in = TensorView(in->data(), DType::kF32, {rows, kRowFloats})};
  const auto seconds = timer.Seconds(stream, [&] { return device.ops().TopK(args, stream); });
  if (!seconds.ok()) return seconds;
  return static_cast<double>(rows * kRowBytes) / *seconds;
}

absl::StatusOr<double> ReadRate(Device& device, Stream& stream, const ProbeOptions& options,
                                const Timer& timer) {
  return options.reads_weights ? WeightsReadRate(device, stream, options, timer)
                               : RowsReadRate(device, stream, options, timer);
}

absl::StatusOr<double> LinearRate(Device& device, Stream& stream, const ProbeOptions& options,
                                  const Timer& timer, DType weight, DType activation) {
  const int64_t size = options.matrix_size;
  const LinearSpec spec = {.in_features = size, .out_features = size, .weight_dtype = weight};
  Ops& ops = device.ops();
  auto memory = device.Allocate(ops.PackedWeightBytes(spec));
  if (!memory.ok()) return memory.status();
  const PackedWeights weights = {.spec = spec, .data = memory->data()};
  // Rows are parts of one another, each begins elsewhere.
  constexpr int64_t kStarts = 61;
  std::vector<float> values(size + kStarts);
  std::memcpy(values.data(), Numbers(2 * (size + kStarts)).data(), values.size() * sizeof(float));
  for (int64_t r = 0; r < size; ++r) {
    const TensorView row(values.data() + r % kStarts, DType::kF32, {1, size});
    if (absl::Status status = ops.PackWeightRows(weights, r, row); !status.ok()) return status;
  }
  const int64_t activation_bytes = options.rows * size * SizeInBytes(activation);
  auto in = AllocateFilled(device, stream, activation_bytes);
  if (!in.ok()) return in.status();
  auto out = AllocateFilled(device, stream, activation_bytes);
  if (!out.ok()) return out.status();
  const int64_t workspace_bytes = ops.LinearWorkspaceBytes(spec, options.rows, activation);
  auto workspace = device.Allocate(std::max<int64_t>(workspace_bytes, 64));
  if (!workspace.ok()) return workspace.status();
  const LinearArgs args = {
      .out = TensorView(out->data(), activation, {options.rows, size}),
      .in = TensorView(in->data(), activation, {options.rows, size}),
      .weights = &weights,
      .workspace = TensorView(workspace->data(), DType::kI8, {workspace->size_bytes()})};
  const auto seconds = timer.Seconds(stream, [&] { return ops.Linear(args, stream); });
  if (!seconds.ok()) return seconds;
  const double operations = 2.0 * static_cast<double>(options.rows * size) * size;
  return operations / *seconds;
}

// Types of weights with products of their own.
struct ProductKind {
  std::string_view name;
  DType weight;
  int64_t group = 128;
  bool e2m1 = false;
};
constexpr ProductKind kProductKinds[] = {{"bfloat16", DType::kBF16},
                                         {"int8", DType::kI8},
                                         {"int4", DType::kI4},
                                         {"fp8", DType::kF8},
                                         {"mxfp4", DType::kI8, 32, true}};

// The products of a device with every type of weights that it keeps so. One thread.
class Products {
 public:
  Products(Device& device, Stream& stream, const ProbeOptions& options, Timer& timer)
      : device_(device), stream_(stream), options_(options), timer_(timer) {}

  absl::StatusOr<std::vector<ProductRate>> Measure(const ProductsLook& look) {
    const double begin = Now();
    for (const ProductKind& kind : kProductKinds) {
      if (Now() - begin >= look.max_seconds) break;
      if (look.is_known && look.is_known(kind.name)) continue;
      const LinearSpec whole = SpecOf(kind, options_.matrix_size, options_.matrix_size);
      if (!KeepsCodes(whole)) continue;
      std::vector<int64_t> read = {1, kFewRows};
      if (options_.reads_weights) read.push_back(kMoreRows);
      if (options_.rows > read.back()) read.push_back(options_.rows);
      bool measured = true;  // so far: what others follow from is the rate with one row
      for (size_t i = 0; i < read.size() && measured; ++i) {
        const absl::StatusOr<bool> added = Add(kind, read[i], read[i] != options_.rows);
        if (!added.ok()) return added.status();
        measured = *added;
      }
    }
    return std::move(rates_);
  }

 private:
  // On CPUs time grows with the rows from few on; GPUs take some more in the time of one.
  static constexpr int64_t kFewRows = 8, kMoreRows = 64;
  static constexpr int64_t kReadParts = 4;  // of options.buffer_bytes that few rows read

  static LinearSpec SpecOf(const ProductKind& kind, int64_t in, int64_t out) {
    return {.in_features = in,
            .out_features = out,
            .weight_dtype = kind.weight,
            .group_size = kind.group,
            .e2m1 = kind.e2m1};
  }

  // A device that computes with e2m1 as with int8 keeps no four bits.
  bool KeepsCodes(LinearSpec spec) const {
    const int64_t bytes = device_.ops().PackedWeightBytes(spec);
    const bool e2m1 = std::exchange(spec.e2m1, false);
    return !e2m1 || bytes < device_.ops().PackedWeightBytes(spec);
  }

  LinearSpec ReadSpec(const ProductKind& kind, int64_t bytes) const {
    const LinearSpec column = SpecOf(kind, kReadInputs, 64);
    const int64_t columns = 64 * bytes / device_.ops().PackedWeightBytes(column) / 64 * 64;
    return SpecOf(kind, kReadInputs, std::max<int64_t>(64, columns));
  }

  // False: the device does not compute with such weights, or has no room. `reads`: as many weights
  // as no cache holds.
  absl::StatusOr<bool> Add(const ProductKind& kind, int64_t rows, bool reads) {
    int64_t size = reads ? options_.buffer_bytes / kReadParts : options_.matrix_size;
    timer_.NextWindow(0.25);
    const auto rate = WithRoom(size, reads ? kRowBytes : kMinMatrixSize, [&] {
      return ProductReadRate(device_, stream_, timer_,
                             reads ? ReadSpec(kind, size) : SpecOf(kind, size, size), rows,
                             DType::kBF16);
    });
    if (rate.ok()) {
      rates_.push_back({kind.name, rows, *rate});
      return true;
    }
    const bool cannot = absl::IsResourceExhausted(rate.status()) ||
                        absl::IsInvalidArgument(rate.status()) ||
                        absl::IsUnimplemented(rate.status());
    if (!cannot) return rate.status();
    return false;
  }

  Device& device_;
  Stream& stream_;
  const ProbeOptions& options_;
  Timer& timer_;
  std::vector<ProductRate> rates_;
};

}  // namespace

absl::StatusOr<std::vector<ProductRate>> ProbeProducts(Device& device, const ProbeOptions& options,
                                                       const ProductsLook& look) {
  auto stream = device.CreateStream();
  if (!stream.ok()) return stream.status();
  Timer timer(options);
  return Products(device, **stream, options, timer).Measure(look);
}

absl::StatusOr<double> ProbeReadRate(Device& device, const ProbeOptions& options) {
  auto stream = device.CreateStream();
  if (!stream.ok()) return stream.status();
  ProbeOptions fitting = options;
  return WithRoom(fitting.buffer_bytes, kRowBytes,
                  [&] { return ReadRate(device, **stream, fitting, Timer(options)); });
}

absl::StatusOr<DeviceRates> ProbeDevice(Device& device, const ProbeOptions& options) {
  auto stream = device.CreateStream();
  if (!stream.ok()) return stream.status();
  ProbeOptions fitting = options;
  DeviceRates rates;
  Timer timer(options);
  timer.NextWindow();
  auto read = WithRoom(fitting.buffer_bytes, kRowBytes,
                       [&] { return ReadRate(device, **stream, fitting, timer); });
  if (!read.ok()) return read.status();
  rates.read_bytes_per_second = *read;
  rates.read_buffer_bytes = fitting.buffer_bytes;
  struct Kind {
    DType weight, activation;
    double* rate;
  };
  for (const Kind& kind : {Kind{DType::kF32, DType::kF32, &rates.f32_flops_per_second},
                           Kind{DType::kBF16, DType::kBF16, &rates.bf16_flops_per_second},
                           Kind{DType::kI8, DType::kBF16, &rates.int8_flops_per_second}}) {
    timer.NextWindow();
    auto rate = WithRoom(fitting.matrix_size, kMinMatrixSize, [&] {
      return LinearRate(device, **stream, fitting, timer, kind.weight, kind.activation);
    });
    if (!rate.ok()) return rate.status();
    *kind.rate = *rate;
  }
  if (!options.products) return rates;
  auto products = Products(device, **stream, fitting, timer).Measure({});
  if (!products.ok()) return products.status();
  rates.products = *std::move(products);
  return rates;
}

}  // namespace tessera::kernels
