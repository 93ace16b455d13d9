// Any bytes as a step from a leader: refused with a reason, or a step whose indices stay within it
// and within the KV pool.

#include <google/protobuf/stubs/logging.h>

#include <cstdint>
#include <cstdlib>

#include "worker/step/step_wire.h"

namespace {

constexpr int64_t kBlocks = 20, kWindowBlocks = 10, kBlockTokens = 4;

void Require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static google::protobuf::LogSilencer silence;
  tessera::worker::StepLimits limits;
  limits.max_tokens = 16;
  limits.max_sequences = 4;
  limits.max_logit_rows = 4;
  limits.max_blocks_per_sequence = 8;
  limits.windows_apart = true;
  const tessera::KvBlocks kv(kBlocks, size % 2 == 1 ? kWindowBlocks : 0);  // both kinds of pools
  tessera::worker::ReceivedStep step(limits, kv, kBlockTokens);
  if (!step.descriptor()->ParseFromArray(data, static_cast<int>(size))) return 0;
  const absl::Status status = step.Check();
  if (!status.ok()) {
    Require(absl::IsInvalidArgument(status) && !status.message().empty());
    return 0;
  }
  const tessera::worker::StepWork work = step.work();
  const tessera::worker::StepArrays& arrays = *work.arrays;
  Require(arrays.rows() <= limits.max_tokens && arrays.sequences() <= limits.max_sequences);
  Require(work.samples.size() + work.scores.size() ==
          static_cast<std::size_t>(arrays.logit_count()));
  for (const int32_t slot : arrays.slots()) Require(slot >= -1 && slot < kBlocks * kBlockTokens);
  for (const int32_t block : arrays.padded_tables()) Require(block >= 0 && block < kBlocks);
  if (arrays.windows_apart()) {
    for (const int32_t slot : arrays.window_slots())
      Require(slot >= -1 && slot < kWindowBlocks * kBlockTokens);
    for (const int32_t block : arrays.padded_window_tables())
      Require(block >= 0 && block < kWindowBlocks);
  }
  for (const int32_t row : arrays.logit_rows()) Require(row >= 0 && row < arrays.rows());
  return 0;
}
