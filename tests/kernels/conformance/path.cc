#include "tests/kernels/conformance/path.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "kernels/cpu/device/cpu_device.h"
#include "kernels/cuda/emulation/runtime.h"
#include "kernels/half_floats.h"
#include "tests/kernels/device_under_test.h"
#include "third_party/absl/str_cat.h"

namespace tessera::kernels::conformance {
namespace {

constexpr std::byte kPaddingByte{0x5b};

std::unique_ptr<Path> MakePath(Isa isa) {
  auto device =
      CreateCpuDevice({.memory_bytes = int64_t{2} << 30, .isa = isa, .cores_shared = true});
  REQUIRE(device.ok());
  return std::make_unique<Path>(*std::move(device));
}

std::unique_ptr<Path> MakeCudaPath() {
  auto made = cuda::MakeCudaUnderTest(int64_t{2} << 30);
  INFO(made.status().message());
  REQUIRE(made.ok());
  return std::make_unique<Path>(std::move(made->device), made->check_memory);
}

template <typename T>
void Put(std::vector<std::byte>& bytes, int64_t index, T value) {
  std::memcpy(bytes.data() + index * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

template <typename T>
T Take(const std::vector<std::byte>& bytes, int64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

TensorView ViewOf(std::byte* data, DType dtype, const std::vector<int64_t>& shape,
                  int64_t padding) {
  TensorView view;
  view.data = data;
  view.dtype = dtype;
  for (int64_t size : shape) view.shape[view.rank++] = size;
  view.row_stride = view.RowElements() + padding;
  return view;
}

int64_t BytesOf(const TensorView& view) {
  return view.rows() * view.row_stride * SizeInBytes(view.dtype);
}

// Behind a copy: what kernels may have done to the memory is looked at behind them.
void Await(Stream& stream) {
  const absl::Status status = stream.Synchronize();
  INFO(status.message());
  REQUIRE(status.ok());
}

}  // namespace

Path::Path(std::unique_ptr<Device> device, absl::Status (*check)())
    : device_(std::move(device)), check_(check) {
  auto stream = device_->CreateStream();
  REQUIRE(stream.ok());
  stream_ = *std::move(stream);
}

bool Path::Takes(DType dtype) const {
  return dtype != DType::kF16 || name() == "reference" || name().starts_with("cuda");
}

TensorView Path::Workspace(int64_t size_bytes) {
  if (workspace_.data() == nullptr || workspace_.size_bytes() < size_bytes) {
    Synchronize();
    auto buffer = device_->Allocate(std::max<int64_t>(size_bytes, 64));
    REQUIRE(buffer.ok());
    workspace_ = *std::move(buffer);
  }
  return TensorView(workspace_.data(), DType::kI8, {workspace_.size_bytes()});
}

void Path::Synchronize() {
  Await(*stream_);
  if (check_ != nullptr) REQUIRE(check_().message() == "");
}

Path& Reference() {
  static const std::unique_ptr<Path> path = MakePath(Isa::kReference);
  return *path;
}

const std::vector<std::unique_ptr<Path>>& OtherPaths() {
  static const std::vector<std::unique_ptr<Path>> paths = [] {
    std::vector<std::unique_ptr<Path>> made;
    for (Isa isa : SupportedIsas(DetectCpuFeatures())) {
      if (isa != Isa::kReference) made.push_back(MakePath(isa));
    }
    return made;
  }();
  return paths;
}

std::string MissingPaths() {
  std::string missing;
  for (Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx}) {
    if (IsSupported(isa, DetectCpuFeatures())) continue;
    missing += StrCat(missing.empty() ? "" : ", ", Name(isa));
  }
  return missing.empty() ? "" : StrCat("this processor lacks ", missing);
}

Path* CudaEmulated() {
#ifdef __SANITIZE_THREAD__
  return nullptr;
#else
  if (cuda::DevicesUnderTest() == cuda::UnderTest::kGpu) return nullptr;
  static const std::unique_ptr<Path> path = [] {
    cuda::emulated::Inject({.vary_schedules = true});
    return MakeCudaPath();
  }();
  return path.get();
#endif
}

Path* Gpu() {
  if (cuda::DevicesUnderTest() != cuda::UnderTest::kGpu) return nullptr;
  static const std::unique_ptr<Path> path = MakeCudaPath();
  return path.get();
}

const std::vector<std::string>& MissingOnCuda() {
  static const std::vector<std::string> missing;  // none today
  return missing;
}

std::vector<Path*> PathsWith(const std::string& op) {
  std::vector<Path*> paths;
  if (cuda::DevicesUnderTest() == cuda::UnderTest::kAllWithoutGpu) {
    for (const auto& path : OtherPaths()) paths.push_back(path.get());
  }
  const auto& missing = MissingOnCuda();
  const bool has = std::find(missing.begin(), missing.end(), op) == missing.end();
  for (Path* cuda : {CudaEmulated(), Gpu()}) {
    if (has && cuda != nullptr) paths.push_back(cuda);
  }
  return paths;
}

std::vector<float> RandomFloats(int64_t count, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value =
        static_cast<float>(static_cast<int64_t>(generator() >> 11) - (int64_t{1} << 52)) * 0x1p-52f;
  }
  return values;
}

std::vector<int32_t> RandomInts(int64_t count, int32_t below, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::vector<int32_t> values(count);
  for (int32_t& value : values) value = static_cast<int32_t>(generator() % below);
  return values;
}

Tensor::Tensor(Path& path, DType dtype, std::vector<int64_t> shape,
               const std::vector<float>& values, int64_t padding)
    : path_(path), view_(ViewOf(nullptr, dtype, shape, padding)) {
  std::vector<std::byte> bytes(BytesOf(view_), kPaddingByte);
  const int64_t width = view_.RowElements();
  REQUIRE(static_cast<int64_t>(values.size()) == view_.Elements());
  const float* value = values.data();
  for (int64_t row = 0; row < view_.rows(); ++row) {
    for (int64_t at = row * view_.row_stride; at < row * view_.row_stride + width; ++at, ++value) {
      switch (dtype) {
        case DType::kBF16: Put(bytes, at, FromFloat<BFloat16>(*value)); break;
        case DType::kF16: Put(bytes, at, FromFloat<Float16>(*value)); break;
        case DType::kI8:
        case DType::kF8: Put(bytes, at, static_cast<uint8_t>(*value)); break;
        default: Put(bytes, at, *value);
      }
    }
  }
  Upload(bytes);
}

Tensor::Tensor(Path& path, std::vector<int64_t> shape, const std::vector<int32_t>& values)
    : path_(path), view_(ViewOf(nullptr, DType::kI32, shape, 0)) {
  REQUIRE(static_cast<int64_t>(values.size()) == view_.Elements());
  std::vector<std::byte> bytes(BytesOf(view_));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  Upload(bytes);
}

Tensor::Tensor(Path& path, const std::vector<uint64_t>& values)
    : path_(path), view_(ViewOf(nullptr, DType::kU64, {static_cast<int64_t>(values.size())}, 0)) {
  std::vector<std::byte> bytes(BytesOf(view_));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  Upload(bytes);
}

void Tensor::Upload(const std::vector<std::byte>& bytes) {
  auto buffer = path_.device().Allocate(static_cast<int64_t>(bytes.size()));
  REQUIRE(buffer.ok());
  buffer_ = *std::move(buffer);
  view_.data = buffer_.data();
  REQUIRE(path_.stream()
              .CopyToDevice(view_.data, bytes.data(), static_cast<int64_t>(bytes.size()))
              .ok());
  Await(path_.stream());
}

std::vector<std::byte> Tensor::Download() const {
  path_.Synchronize();
  std::vector<std::byte> bytes(BytesOf(view_));
  REQUIRE(
      path_.stream().CopyToHost(bytes.data(), view_.data, static_cast<int64_t>(bytes.size())).ok());
  Await(path_.stream());
  return bytes;
}

std::vector<float> Tensor::Read() const {
  const std::vector<std::byte> bytes = Download();
  std::vector<float> values(view_.Elements());
  const int64_t width = view_.RowElements();
  for (int64_t i = 0; i < view_.Elements(); ++i) {
    const int64_t at = i / width * view_.row_stride + i % width;
    values[i] = view_.dtype == DType::kBF16     ? ToFloat(Take<BFloat16>(bytes, at))
                : view_.dtype == DType::kF16    ? ToFloat(Take<Float16>(bytes, at))
                : SizeInBytes(view_.dtype) == 1 ? static_cast<float>(Take<uint8_t>(bytes, at))
                                                : Take<float>(bytes, at);
  }
  return values;
}

std::vector<int32_t> Tensor::ReadInts() const {
  const std::vector<std::byte> bytes = Download();
  std::vector<int32_t> values(view_.Elements());
  for (int64_t i = 0; i < view_.Elements(); ++i) values[i] = Take<int32_t>(bytes, i);
  return values;
}

bool Tensor::PaddingIntact() const {
  const std::vector<std::byte> bytes = Download();
  const int64_t size = SizeInBytes(view_.dtype);
  const int64_t row_bytes = view_.row_stride * size, used_bytes = view_.RowElements() * size;
  for (int64_t i = 0; i < static_cast<int64_t>(bytes.size()); ++i) {
    if (i % row_bytes >= used_bytes && bytes[i] != kPaddingByte) return false;
  }
  return true;
}

Tensor Zeros(Path& path, DType dtype, std::vector<int64_t> shape, int64_t padding) {
  const int64_t count = ViewOf(nullptr, dtype, shape, 0).Elements();
  return Tensor(path, dtype, std::move(shape), std::vector<float>(count), padding);
}

Tensor Random(Path& path, DType dtype, std::vector<int64_t> shape, uint64_t seed, int64_t padding) {
  const int64_t count = ViewOf(nullptr, dtype, shape, 0).Elements();
  return Tensor(path, dtype, std::move(shape), RandomFloats(count, seed), padding);
}

double Tolerance(DType dtype) {
  if (dtype == DType::kF16) return 2e-3;
  return dtype == DType::kBF16 ? 1e-2 : 1e-5;
}

std::string Difference(const std::vector<float>& actual, const std::vector<float>& expected,
                       double tolerance) {
  if (actual.size() != expected.size()) {
    return StrCat(actual.size(), " values instead of ", expected.size());
  }
  double largest = 0;
  for (float value : expected) {
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(double{value}));
  }
  for (size_t i = 0; i < actual.size(); ++i) {
    const bool same =
        actual[i] == expected[i] || (std::isnan(actual[i]) && std::isnan(expected[i]));
    if (same) continue;
    const double difference = std::fabs(double{actual[i]} - expected[i]);
    if (!(difference <= tolerance * largest)) {
      return StrCat("value ", i, " of ", actual.size(), " is ", actual[i], ", must be ",
                    expected[i], " within ", tolerance * largest);
    }
  }
  return "";
}

void CheckAgainstReference(const std::string& op, double tolerance,
                           const std::function<std::vector<float>(Path&)>& run) {
  const std::vector<float> expected = run(Reference());
  for (Path* path : PathsWith(op)) {
    INFO("path " << path->name());
    CHECK(Difference(run(*path), expected, tolerance) == "");
  }
}

void CheckAgainstReference(const std::string& op, DType dtype,
                           const std::function<std::vector<float>(Path&)>& run) {
  const std::vector<float> expected = run(Reference());
  for (Path* path : PathsWith(op)) {
    if (!path->Takes(dtype)) continue;
    INFO("path " << path->name());
    CHECK(Difference(run(*path), expected, Tolerance(dtype)) == "");
  }
}

}  // namespace tessera::kernels::conformance
