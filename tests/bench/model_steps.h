// A whole model on a device, and the time of its steps: what a worker runs for each step, without
// the engine around it.
//
// Units: tokens, bytes, seconds. Thread rule: one thread. Borrows the device. A step that fails
// ends the process with a message: there is nothing to measure then.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/collectives/group.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "worker/model/model.h"
#include "worker/step/step_inputs.h"

namespace tessera::bench {

struct ModelStepsOptions {
  std::string folder;  // Hugging Face folder
  v1::DataType weights = v1::DATA_TYPE_UNSPECIFIED;
  int64_t context_tokens = 0;  // KV memory, of all sequences of a step
  int64_t max_batch = 16;
  int64_t max_chunk = 2048;
  // A rank's part, which needs Join; none: the whole model.
  std::optional<v1::WorkerShare> share = std::nullopt;
};

class ModelSteps {
 public:
  static constexpr int64_t kBlockTokens = 64;  // the daemon's default

  // KV memory holds zeros. Errors are those of loading.
  static absl::StatusOr<std::unique_ptr<ModelSteps>> Load(const ModelStepsOptions& options,
                                                          kernels::Device& device);

  // For a rank's part, before its first step; `group` is borrowed. `device_bytes`: of sums that the
  // ranks' devices make by themselves, so that steps may be graphs.
  absl::Status Join(kernels::Group* group, int64_t device_bytes);
  // Graphs of steps that are kept.
  int64_t graphs() const;

  // One step: every sequence gets one more token behind context - 1.
  double Decode(int64_t batch, int64_t context);
  // A prompt.
  double Prefill(int64_t tokens, int64_t chunk);

  // Of weights that a step multiplies with, and of keys and values.
  int64_t BytesRead(int64_t batch, int64_t context) const;
  // With weights, and of attention: a key's and a value's for every query head.
  int64_t Products(int64_t batch, int64_t context) const;

  // A dense layer's, as worker/weights fuses them.
  std::vector<kernels::LinearSpec> LayerSpecs() const;

  const v1::Model& shape() const { return options_.model; }
  const worker::Model& model() const { return *model_; }

 private:
  ModelSteps() = default;
  absl::Status MakeKv();
  kernels::LinearSpec LayerSpec(int64_t in_features, int64_t out_features) const;
  kernels::LinearSpec HeadSpec() const;
  double RunStep();
  int32_t Seat(int64_t sequence) const { return seats_ > 0 ? static_cast<int32_t>(sequence) : -1; }

  kernels::Device* device_ = nullptr;
  int64_t context_tokens_ = 0;
  int64_t max_batch_ = 0;
  int64_t seats_ = 0;  // for the states of as many sequences, where layers keep any
  worker::ModelOptions options_;
  kernels::Buffer kv_;
  std::unique_ptr<worker::Model> model_;
  std::unique_ptr<worker::StepArrays> arrays_;
  std::unique_ptr<worker::StepUpload> upload_;
  std::unique_ptr<kernels::Stream> stream_;
  bool pads_ = false;  // as the worker does (worker/step/stage_runner)
  std::vector<int32_t> tokens_;
};

}  // namespace tessera::bench
