#include "worker/engine/ready_report.h"

#include <cstdio>
#include <string>

#include "proto/data_types.h"
#include "third_party/absl/str_cat.h"
#include "third_party/spdlog/log.h"
#include "worker/engine/kv_messages.h"

namespace tessera::worker {
namespace {

// "0.32": hundredths are what a reader of the log compares.
std::string Rounded(double seconds) {
  char text[32];
  snprintf(text, sizeof text, "%.2f", seconds);
  return text;
}

}  // namespace

void DescribeWorker(const kernels::Device& device, const ModelOptions& model,
                    const EngineOptions& options, const LoadedShare& share, int64_t staging_bytes,
                    v1::WorkerReady* ready) {
  ready->set_device(device.Describe());
  ready->set_weight_dtype(ToProto(model.weight_dtype));
  ready->set_kv_dtype(ToProto(model.kv_dtype));
  ready->set_weight_bytes(share.model->weight_bytes());
  ready->set_activation_bytes(share.model->activation_bytes() + staging_bytes);
  ready->set_kv_pool_bytes(share.kv_memory.size_bytes());
  ready->set_kv_blocks(static_cast<int32_t>(options.limits.total_blocks));
  ready->set_block_tokens(static_cast<int32_t>(options.limits.block_tokens));
}

void LogReady(const v1::ConfigureRequest& request, const EngineOptions& options,
              const v1::WorkerReady& ready) {
  std::string phases;
  double seconds = 0;
  for (const v1::StartupPhase& phase : ready.startup()) {
    phases += StrCat(phases.empty() ? "" : ", ", phase.name(), " ", Rounded(phase.seconds()), " s");
    seconds += phase.seconds();
  }
  std::string windows;
  if (options.window.tokens > 0) {
    windows = StrCat(" and ", options.window.total_blocks, " of the layers with a window of ",
                     options.window.tokens, " tokens");
  }
  if (options.seats > 0) windows += StrCat(" and states of ", options.seats, " sequences");
  Logger("worker").info(
      "ready for replica {} of {}, layers {} to {}: weights {} {} bytes, KV {} {} blocks{} of {} "
      "tokens ({} bytes), steps of {} rows, {} sequences, context {}; {:.2f} s: {}",
      request.replica(), request.model().name(), request.share().layers().begin(),
      request.share().layers().end() - 1, NameOf(ready.weight_dtype()), ready.weight_bytes(),
      NameOf(ready.kv_dtype()), ready.kv_blocks(), windows, ready.block_tokens(),
      ready.kv_pool_bytes(), options.limits.max_batched_tokens, options.limits.max_sequences,
      options.max_model_len_tokens, seconds, phases);
  if (options.limits.total_blocks * options.limits.block_tokens < options.max_model_len_tokens) {
    Logger("worker").warn("the KV pool holds {} tokens, less than one sequence of the context's {}",
                          options.limits.total_blocks * options.limits.block_tokens,
                          options.max_model_len_tokens);
  }
}

}  // namespace tessera::worker
