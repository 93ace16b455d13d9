#include "tests/bench/gpu/predicted_steps.h"

#include "scheduler/cost/cost_model.h"
#include "scheduler/cost/model_shape.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/input/described_device.h"

namespace tessera::bench {
namespace {

// Of a device that the catalogue does not know: as the least of its GPUs has it.
constexpr double kLayerOverheadSeconds = 40e-6;

}  // namespace

absl::StatusOr<v1::MeasuredProfile> MeasureAsWorker(kernels::Device& device,
                                                    const kernels::ProbeOptions& probe) {
  const auto read = kernels::ProbeReadRate(device, probe);
  if (!read.ok()) return read.status();
  const auto products = kernels::ProbeProducts(device, probe, {});
  if (!products.ok()) return products.status();
  v1::MeasuredProfile profile;
  profile.set_memory_read_bytes_per_second(*read);
  for (const kernels::ProductRate& product : *products) {
    v1::ProductRate& rate = *profile.add_products();
    rate.set_weights(std::string(product.weights));
    rate.set_rows(static_cast<int32_t>(product.rows));
    rate.set_read_bytes_per_second(product.read_bytes_per_second);
  }
  return profile;
}

absl::StatusOr<double> PredictedStepSeconds(const std::string& kind,
                                            const v1::MeasuredProfile& profile,
                                            const v1::Model& model, v1::DataType weights,
                                            int64_t batch, int64_t context) {
  const auto catalogue = scheduler::BuiltInDevices();
  if (!catalogue.ok()) return catalogue.status();
  v1::DeviceKind described;
  described.set_name(kind);
  described.set_layer_overhead_seconds(kLayerOverheadSeconds);
  described.set_dense_flops_per_second(1e14);
  if (const v1::DeviceKind* known = scheduler::FindKind(*catalogue, kind)) described = *known;
  v1::DeviceGroup group;
  *group.mutable_profile() = profile;
  const scheduler::DeviceSpec device = scheduler::DescribedDevice(described, group);
  const auto shape = scheduler::MakeModelShape(model, weights);
  if (!shape.ok()) return shape.status();
  scheduler::StageSpec stage;
  stage.ranks = {&device};
  stage.layers = shape->layers;
  stage.holds_embedding = stage.holds_head = true;
  return scheduler::StageSeconds(
      *shape, stage,
      scheduler::DecodeWork(static_cast<double>(batch), static_cast<double>(context)));
}

}  // namespace tessera::bench
