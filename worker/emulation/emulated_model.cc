#include "worker/emulation/emulated_model.h"

#include "kernels/dtype.h"
#include "proto/layers/kv_sizes.h"
#include "worker/model/model_dtypes.h"

namespace tessera::worker {
namespace {

class EmulatedModel final : public Model {
 public:
  EmulatedModel(const ModelOptions& options, int64_t weight_bytes, int64_t activation_bytes)
      : options_(options), weight_bytes_(weight_bytes), activation_bytes_(activation_bytes) {}

  int64_t seats() const override { return seats_; }
  int64_t SeatBytes() const override { return BlockBytes(1).seat; }
  int64_t KvBlockBytes(int64_t block_tokens) const override {
    return BlockBytes(block_tokens).common;
  }
  absl::Status AttachKv(std::byte* /*memory*/, KvBlocks blocks, int64_t /*block_tokens*/) override {
    seats_ = blocks.seats;
    return absl::OkStatus();
  }
  absl::Status Forward(const StepInputs& /*step*/, kernels::Stream& /*stream*/) override {
    return absl::InternalError("an emulated model computes nothing");
  }
  kernels::TensorView stage_rows() const override { return {}; }
  kernels::TensorView logits() const override { return {}; }
  int64_t weight_bytes() const override { return weight_bytes_; }
  int64_t activation_bytes() const override { return activation_bytes_; }

 private:
  tessera::KvBlockBytes BlockBytes(int64_t block_tokens) const {
    return BlockBytesOf(options_.model, options_.share, KvElementOf(options_.kv_dtype),
                        block_tokens, /*windows_apart=*/false);
  }

  const ModelOptions options_;
  const int64_t weight_bytes_, activation_bytes_;
  int64_t seats_ = 0;
};

}  // namespace

std::unique_ptr<Model> MakeEmulatedModel(const ModelOptions& options, int64_t weight_bytes,
                                         int64_t activation_bytes) {
  return std::make_unique<EmulatedModel>(options, weight_bytes, activation_bytes);
}

}  // namespace tessera::worker
