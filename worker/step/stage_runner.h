// One worker's part of a step: take the rows of the stage before, run this share of the model, hand
// the rows on; on the last stage, sample. A worker that holds the whole model has no links, and is
// first and last.
//
// Steps ahead: on a device whose stream can be marked (kernels/event_stream.h), a worker alone
// can also enqueue a step and read its tokens later, with the next one enqueued behind it. That
// one's rows may be fed: their tokens are those that this one draws, on the device. So can the
// ranks of a replica of one stage, where their devices sum: those that do not draw get the tokens
// from rank 0's device, in front of the step that they feed. So can stages that hand on by their
// devices (DeviceHops). Where a head or a model drafts, each step ends before the next one.
//
// Thread rule: one call at a time. Ownership: borrows model (KV memory attached), device and links;
// owns staging, sampler and stream. Rows and sums go through host memory of its own where the host
// does not read the device's (Device::host_reads_memory). A failed step leaves links in an unknown
// state: the formation ends.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/collectives/device_sums.h"
#include "kernels/collectives/group.h"
#include "kernels/device.h"
#include "kernels/event_stream.h"
#include "kernels/graph_stream.h"
#include "kernels/links/frame.h"
#include "kernels/links/link.h"
#include "worker/model/model.h"
#include "worker/step/draft_runner.h"
#include "worker/step/sampler.h"
#include "worker/step/seat_ledger.h"
#include "worker/step/stage.h"
#include "worker/step/state_store.h"
#include "worker/step/step_executor.h"
#include "worker/step/step_inputs.h"

namespace tessera::worker {

// Types of frames on the links between workers of a replica. The payload is a message of
// proto/worker.proto of that name, the f32 rows of the residual stream, or what the ranks of a
// stage say while they agree how to sum (worker/formation/stage_group.h).
enum class FrameType : uint16_t {
  kMemberReady = kernels::kFirstOwnerFrame,
  kFormationStart,
  kStepDescriptor,
  kStepResult,
  kActivations,
  kSumOverLinks,
  kSumInSharedMemory,
  kKvNote,
  kRankDevice,
  kSumOnDevices,
  kDevicesJoined,
  kMasklessStep,  // a step descriptor behind which a frame of its masks comes
  kStepMasks,
  kSumsMapped,
  kHopDevice,
  kHopsMapped,
};

// Pairs of devices of neighbours, in memory that both map: each hands values on with no host. The
// first of a pair is its rank 0. Borrowed.
struct DeviceHops {
  static constexpr int64_t kMaxPieces = 4;  // of a step's rows: larger ones go through the hosts

  kernels::DeviceSums* previous = nullptr;  // rows come; null where StageLinks has no such link
  kernels::DeviceSums* next = nullptr;      // rows go; likewise
  // Rank 0 of the first stage and the worker that draws, which gives it tokens; of others null.
  kernels::DeviceSums* tokens = nullptr;
  int64_t piece_bytes = 0;  // that one call takes; of every member of the replica
};

// Where a stage's rows come from and go to. Null: there is nothing (first or last stage; rank other
// than 0; a stage of one rank).
struct StageLinks {
  kernels::Link* previous = nullptr;  // rank 0 of the stage before
  kernels::Link* next = nullptr;      // rank 0 of the stage behind
  kernels::Group* group = nullptr;    // all ranks of this stage
  // The devices of the same ranks sum, too, beside a group. Null: they do not.
  kernels::DeviceSums* sums = nullptr;
  bool has_other_stages = false;
  // All stages of the replica hand rows of few bytes on by their devices, and the drawn tokens come
  // back so. Null: rank 0's host waits for other stages, longer than a device may wait for a rank.
  const DeviceHops* hops = nullptr;  // borrowed
};

struct StageOptions {
  StepLimits limits;  // that the model was loaded with
  SamplerLimits sampler;
  bool first = false;    // stage: no rows come
  bool samples = false;  // rank 0 of the last stage
  // Longest wait for rows to come or to be taken; a peer that is lost ends it earlier.
  double wait_seconds = 600;
  int64_t block_tokens = 0;                 // of the KV that is attached
  int64_t snapshots = 0;                    // states of prompts to keep, where the model has seats
  std::shared_ptr<StateExchange> exchange;  // as of StateStore::Create
  // Takes this worker's part of the steps' pushes. Borrowed; null: there are none.
  KvSender* kv_sender = nullptr;
  // What steps compute, without waits for other workers and without their transfers, is added here.
  // Borrowed; null: nobody asks.
  std::atomic<int64_t>* busy_nanoseconds = nullptr;
};

class StageRunner final : public Stage {
 public:
  static absl::StatusOr<std::unique_ptr<StageRunner>> Create(const StageOptions& options,
                                                             const StageLinks& links, Model* model,
                                                             kernels::Device* device);

  absl::Status Run(const StepWork& work, StepOutcome* outcome) override;

  bool runs_ahead() const override { return marks_ != nullptr; }
  // Where it pushes no KV, has no more rows than devices hand on, and, of a worker that draws, asks
  // for tokens alone, without logprobs and final rows.
  bool RunsAhead(const StepWork& work) const override;
  bool FeedsNext(const StepWork& work) const override;
  absl::Status Enqueue(const StepWork& work) override;
  bool Ended() const override { return marks_->Passed(PlaceOf(collected_)); }
  absl::Status Collect(size_t samples, StepOutcome* outcome) override;

  // What the stream keeps of steps that come again; nothing where it keeps none. After Run.
  kernels::GraphStream::Kept kept() const {
    return repeating_ == nullptr ? kernels::GraphStream::Kept() : repeating_->kept();
  }

  bool samples() const override { return options_.samples; }
  int64_t device_bytes() const override {
    return upload_->device_bytes() + fed_.size_bytes() +
           (sampler_ == nullptr ? 0 : sampler_->device_bytes()) +
           (drafts_ == nullptr ? 0 : drafts_->device_bytes());
  }

 private:
  StageRunner(const StageOptions& options, const StageLinks& links, Model* model, kernels::Ops* ops)
      : options_(options), seats_(model->seats()), links_(links), model_(model), ops_(ops) {}

  // The mark of the step that was enqueued so many steps behind the first.
  static int PlaceOf(int64_t step) { return static_cast<int>(step % kernels::EventStream::kMarks); }
  absl::Status RunParts(const StepWork& work, StepOutcome* outcome);
  // Rows from the stage before, or to the one behind: by the devices, or by the hosts.
  absl::Status TakeRows(int64_t rows);
  absl::Status HandOn(int64_t rows);
  // Not in the first step, which loads kernels on each device, maybe for longer than another one
  // waits. All workers of the replica answer alike.
  bool HopsOnDevice(int64_t rows) const;
  absl::Status TakeOnDevice(int64_t rows);
  absl::Status HandOnDevice(int64_t rows);
  absl::Status HandOnByHost(int64_t rows);
  // The piece of these rows that begins so many bytes behind their start.
  kernels::TensorView HopPiece(int64_t rows, int64_t begin) const;
  absl::Status RunModel(const StepWork& work);
  // Whether the worker that draws only enqueues that.
  bool DrawsAtOnce(const StepWork& work) const;
  // The tokens that the step before drew, on this worker's device, once TakeDrawn has brought them
  // to where they feed rows.
  kernels::TensorView Drawn() const;
  absl::Status TakeDrawn(const StepWork& work);
  // How long calls of this rank's group, and its device's hops, have taken since this was last
  // asked.
  std::chrono::nanoseconds NewRankTime();
  absl::Status PrepareSeats(const StepWork& work);
  absl::Status SaveStates(const StepWork& work);
  absl::Status Sample(const StepWork& work, StepOutcome* outcome);
  // Final rows of the samples that want theirs, after the stream is done.
  absl::Status ReadFinalRows(const StepWork& work, StepOutcome* outcome);
  // Reads the row sums of the scores that are part of sums.
  absl::Status ReadRowSums(const StepWork& work, StepOutcome* outcome);

  absl::Status MakeStaging(kernels::Device& device);
  bool stages_rows() const { return staged_rows_.size_bytes() > 0; }
  // The rows that links take and give: the model's, or their place in the staging.
  absl::Span<std::byte> LinkedRows(int64_t rows) const;

  const StageOptions options_;
  SeatLedger seats_;
  StageLinks links_;
  Model* const model_;
  kernels::Ops* const ops_;
  // Where the host does not read the device's memory; else null and empty.
  std::unique_ptr<kernels::Group> staged_group_;
  std::unique_ptr<kernels::Group> device_sums_;  // null: links have no sums of devices
  kernels::Group* meeting_group_ = nullptr;      // by which ranks meet before a step; or null
  kernels::HostBuffer staged_rows_;
  kernels::GraphStream* repeating_ = nullptr;  // the stream, or null: it keeps no step
  std::atomic<bool> has_run_ = false;          // a step, so that kernels are loaded
  bool pads_ = false;                          // steps of single tokens, so that few are distinct
  std::unique_ptr<StepUpload> upload_;
  std::unique_ptr<StateStore> states_;       // null: the model has no seats
  std::unique_ptr<Sampler> sampler_;         // null: another worker samples
  kernels::Buffer fed_;                      // what the step before drew, of ranks ahead; or empty
  std::unique_ptr<DraftRunner> drafts_;      // null: nothing here proposes
  std::unique_ptr<kernels::Stream> stream_;  // ends before what its work uses
  std::chrono::nanoseconds link_time_{0};    // of this step: rows from and to other stages
  std::chrono::nanoseconds rank_time_{0};    // as NewRankTime saw it last

  // Steps ahead.
  kernels::EventStream* marks_ = nullptr;  // the stream, or null: there are none
  int64_t enqueued_ = 0, collected_ = 0;
  int64_t drawn_rows_ = 0;  // by the step that was enqueued last
  std::array<std::chrono::steady_clock::time_point, kernels::EventStream::kMarks> began_;
  std::chrono::steady_clock::time_point last_end_;  // of the one collected last
};

}  // namespace tessera::worker
