#include "worker/step/step_memory.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <span>
#include <vector>

namespace tessera::worker {
namespace {

// A step of so many sequences that have one token each, whose keys and values go nowhere; they read
// those of block 0, and have block tables as wide as there may be.
absl::Status FillTrial(int64_t rows, int64_t table_width, int64_t block_tokens,
                       StepArrays* arrays) {
  const std::vector<int32_t> zeros(rows, 0), ones(rows, 1), nowhere(rows, -1);
  const std::vector<int32_t> widths(rows, static_cast<int32_t>(table_width));
  const std::vector<int32_t> tables(rows * table_width, 0);
  std::vector<int32_t> starts(rows + 1);
  std::iota(starts.begin(), starts.end(), 0);
  return arrays->Assign({.token_ids = zeros,
                         .positions = zeros,
                         .rope_lengths = ones,
                         .slots = nowhere,
                         .query_starts = starts,
                         .context_lengths = ones,
                         .table_widths = widths,
                         .tables = tables,
                         .logit_rows = std::span(starts).first(rows)},
                        /*kv=*/1, block_tokens);
}

// What trial steps read, so that they compute with finite numbers.
absl::Status Zero(std::byte* data, int64_t size_bytes, kernels::Device& device) {
  const std::vector<std::byte> zeros(static_cast<size_t>(size_bytes));
  auto stream = device.CreateStream();
  if (!stream.ok()) return stream.status();
  absl::Status status = (*stream)->CopyToDevice(data, zeros.data(), size_bytes);
  status.Update((*stream)->Synchronize());
  return status;
}

absl::StatusOr<int64_t> KeptBytes(const StepLimits& limits, int64_t block_tokens,
                                  StageRunner& stage) {
  const int64_t most = std::min({limits.max_tokens, limits.max_sequences, limits.max_logit_rows});
  StepArrays arrays(limits);
  StepOutcome outcome;
  int64_t last = 0;
  for (int64_t rows = 1; rows <= most; rows = PaddedRows(rows + 1)) {
    last = rows;
    absl::Status status = FillTrial(rows, limits.max_blocks_per_sequence, block_tokens, &arrays);
    for (int time = 0; status.ok() && time < 2; ++time) {  // the second time it is kept
      status = stage.Run({&arrays, {}, {}, {}}, &outcome);
    }
    if (!status.ok()) return status;
  }
  const kernels::GraphStream::Kept kept = stage.kept();
  if (kept.count == 0) return 0;
  // Each also in every width of its block tables, of which the widest has the most launches; and
  // counts of rows that are not padded, since that would be beyond the limits.
  const int64_t widths =
      std::bit_width(std::bit_ceil(static_cast<uint64_t>(limits.max_blocks_per_sequence)));
  const int64_t kinds = std::min(kept.most, (kept.count + most - last) * widths);
  return (kept.bytes * kinds + kept.count - 1) / kept.count;
}

}  // namespace

absl::StatusOr<StepMemory> MeasureStepMemory(const StageOptions& options, bool runs,
                                             int64_t block_tokens, Model* model,
                                             kernels::Device* device) {
  const auto kv = device->Allocate(model->KvBlockBytes(block_tokens) + model->SeatBytes());
  if (!kv.ok()) return kv.status();
  // Before there are seats: the sequences of trial steps have none, and are not refused for that.
  StageOptions trials = options;
  trials.block_tokens = block_tokens;
  const auto stage = StageRunner::Create(trials, {}, model, device);
  if (!stage.ok()) return stage.status();
  const KvBlocks trial(1, 0, model->SeatBytes() > 0 ? 1 : 0);
  absl::Status attached = model->AttachKv(kv->data(), trial, block_tokens);
  if (!attached.ok()) return attached;
  StepMemory memory = {.staging_bytes = (*stage)->device_bytes()};
  if (!runs) return memory;
  const kernels::TensorView rows = model->stage_rows();
  absl::Status zeroed = Zero(kv->data(), kv->size_bytes(), *device);
  zeroed.Update(Zero(rows.data, rows.Elements() * kernels::SizeInBytes(rows.dtype), *device));
  if (!zeroed.ok()) return zeroed;
  const auto kept = KeptBytes(options.limits, block_tokens, **stage);
  if (!kept.ok()) return kept.status();
  memory.kept_bytes = *kept;
  return memory;
}

}  // namespace tessera::worker
