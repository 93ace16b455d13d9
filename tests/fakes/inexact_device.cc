#include "tests/fakes/inexact_device.h"

#include <cstdint>
#include <string>
#include <utility>

#include "tests/fakes/forwarding_ops.h"

namespace tessera {
namespace {

using kernels::Stream;

// Two ways of rounding differ by no less than this and by little more.
constexpr float kFactor = 1 + 0x1p-23f;

struct NudgeArgs {
  float* rows;
  int64_t count, width, stride;
};

absl::Status Nudge(const NudgeArgs& args) {
  for (int64_t row = 0; row < args.count; ++row) {
    float* values = args.rows + row * args.stride;
    for (int64_t i = 0; i < args.width; ++i) values[i] *= kFactor;
  }
  return absl::OkStatus();
}

class InexactOps : public ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;

  absl::Status RmsNorm(const kernels::NormArgs& args, Stream& stream) override {
    const absl::Status status = ops()->RmsNorm(args, stream);
    return status.ok() ? NudgeRows(args.out, stream) : status;
  }
  absl::Status LayerNorm(const kernels::NormArgs& args, Stream& stream) override {
    const absl::Status status = ops()->LayerNorm(args, stream);
    return status.ok() ? NudgeRows(args.out, stream) : status;
  }

 private:
  static absl::Status NudgeRows(const kernels::TensorView& out, Stream& stream) {
    return kernels::EnqueueHost(stream, &Nudge,
                                {.rows = out.As<float>(),
                                 .count = out.rows(),
                                 .width = out.RowElements(),
                                 .stride = out.row_stride});
  }
};

class InexactDevice : public kernels::Device {
 public:
  explicit InexactDevice(std::unique_ptr<kernels::Device> device)
      : device_(std::move(device)), ops_(&device_->ops()) {}

  std::string Describe() const override { return device_->Describe(); }
  int64_t memory_bytes() const override { return device_->memory_bytes(); }
  int host_threads() const override { return device_->host_threads(); }
  absl::StatusOr<kernels::Buffer> Allocate(int64_t size_bytes) override {
    return device_->Allocate(size_bytes);
  }
  absl::StatusOr<std::unique_ptr<Stream>> CreateStream() override {
    return device_->CreateStream();
  }
  kernels::Ops& ops() override { return ops_; }

 private:
  void Free(std::byte*, int64_t) override {}  // buffers are the inner device's

  const std::unique_ptr<kernels::Device> device_;
  InexactOps ops_;
};

}  // namespace

std::unique_ptr<kernels::Device> MakeInexact(std::unique_ptr<kernels::Device> device) {
  return std::make_unique<InexactDevice>(std::move(device));
}

}  // namespace tessera
