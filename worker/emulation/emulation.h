// All emulated devices of a process: they compute nothing, take each step's time from the cost
// model and answer with seeded tokens. Everything else of their workers is real: engine, session,
// admission, blocks, formation, hand-over.
//
// Weights are not read. KV pools are counted, and take memory where a hand-over writes to them: of
// each head's KV kMovedHeadDim numbers go over the connection, so that descriptors, tickets, blocks
// and codecs are the real ones and bytes are few; whoever sends them waits for as long as all of it
// takes on the planned link, which the devices of a machine share.
//
// Thread rule: any thread after Open. It outlives the workers that it fills.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "worker/emulation/emulated_clock.h"
#include "worker/emulation/lateness.h"
#include "worker/emulation/rehearsed_plan.h"
#include "worker/engine/engine_setup.h"

namespace tessera::worker {

inline constexpr int kMovedHeadDim = 2;

class Emulation {
 public:
  // `folder`: of a rehearsal; empty: devices serve replicas of one worker, of kinds of the
  // catalogue. `speed`: model's seconds that pass in one second.
  static absl::StatusOr<std::unique_ptr<Emulation>> Open(const std::string& folder, double speed);

  // Bytes of the device that registers under `name`: as the plan relies on them, else the
  // catalogue's.
  absl::StatusOr<int64_t> MemoryOf(const std::string& kind, const std::string& name) const;
  // Puts what stands for model and device into `setup`, which has its links already.
  void Fill(const std::string& kind, const std::string& name, SetupOptions* setup);

  // What KvOutboxOptions::pace of that device is; null: its plan hands nothing over.
  std::function<void(const v1::KvPiece&)> KvPaceOf(const std::string& name);

  const Lateness& lateness() const { return lateness_; }
  const std::string& folder() const { return folder_; }

 private:
  Emulation(std::string folder, double speed) : folder_(std::move(folder)), speed_(speed) {}

  absl::StatusOr<std::unique_ptr<Stage>> MakeStage(const std::string& kind,
                                                   const v1::ConfigureRequest& request,
                                                   const StageOptions& options,
                                                   const StageLinks& links);

  const std::string folder_;
  const double speed_;
  std::shared_ptr<const RehearsedPlan> plan_;  // null: there is no folder
  Lateness lateness_;
  std::mutex mutex_;
  double link_free_seconds_ = 0;  // when the machine's way to other replicas is
};

}  // namespace tessera::worker
