#include "scheduler/input/held_codes.h"

#include "proto/activations.h"
#include "scheduler/input/runtime_reserve.h"

namespace tessera::scheduler {
namespace {

constexpr int64_t kBlock = 32;  // codes of a scale
constexpr double kFewer = Int4ElementBytes(kBlock) / (Int4ElementBytes(kBlock) + 0.5);

bool HasByteCodes(const v1::Model& model) {
  const v1::Quantization& quantization = model.quantization();
  return quantization.format() == v1::WEIGHT_FORMAT_MXFP4 &&
         quantization.code_bytes() > 1 - quantization.decoded_part();
}

}  // namespace

bool KeepsFourBits(const v1::Cluster& cluster, const v1::Model& model) {
  if (!HasByteCodes(model) && !HasByteCodes(model.draft_model().model())) return false;
  for (const v1::Machine& machine : cluster.machines()) {
    for (const v1::DeviceGroup& group : machine.devices()) {
      if (IsCpuKind(group.kind())) return false;
    }
  }
  return true;
}

void HoldFourBits(v1::Model* model) {
  const auto hold = [](v1::Model* one) {
    v1::Quantization& quantization = *one->mutable_quantization();
    quantization.set_code_bytes(kFewer * quantization.code_bytes());
  };
  if (HasByteCodes(*model)) hold(model);
  if (HasByteCodes(model->draft_model().model()))
    hold(model->mutable_draft_model()->mutable_model());
}

}  // namespace tessera::scheduler
