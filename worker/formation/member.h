// The loop of a worker that is not its replica's leader: receive a step descriptor, run this
// worker's part, answer if it samples; receive a note about KV, and do what it says. Steps that the
// stage can enqueue (worker/step/stage.h) it only enqueues, so that the next one may come while one
// runs, and waits for them, to answer, one step later, or when nothing comes.
//
// It ends when the leader closes the control link, when a step fails (the leader hears why), or by
// Stop. At its end all its links are shut down, so that neighbours end too, and on_end is called
// once, from the loop's thread.
//
// Thread rule: any thread. Ownership: shares the loaded share, owns formation, stage runner and
// thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "kernels/links/link.h"
#include "proto/worker.pb.h"
#include "worker/formation/formation.h"
#include "worker/model/loaded_share.h"
#include "worker/step/stage.h"
#include "worker/step/stage_runner.h"
#include "worker/step/step_wire.h"

namespace tessera::worker {

struct MemberOptions {
  v1::Fence fence;  // plan epoch of the formation; another one is refused
  StepLimits limits;
  KvBlocks kv_blocks{0};  // of the replica
  int64_t block_tokens = 0;
  kernels::Link* control = nullptr;  // to the leader; of the formation, as the others
  std::vector<kernels::Link*> bulk;  // shut down at the end
  // Makes this worker's part in moving KV, with what sends notes to the leader. Null: it has none.
  std::function<std::unique_ptr<KvMemberPart>(std::function<void(const v1::KvNote&)>)> kv_part;
  std::function<void(const absl::Status& reason)> on_end;
};

class Member {
 public:
  Member(MemberOptions options, std::shared_ptr<LoadedShare> share,
         std::unique_ptr<Formation> formation, std::unique_ptr<Stage> stage);
  ~Member() { Stop(absl::UnavailableError("the worker leaves its replica")); }

  // Ends the loop and waits for it. Idempotent.
  void Stop(const absl::Status& reason);

  bool ended() const { return ended_; }
  // Since the newest step ended, or since it was made.
  double idle_seconds() const;

 private:
  void Run();
  // What this member waits for, and others of it, ends.
  void ShutDown(const absl::Status& reason);
  // The next frame, and what it asks for. An error ends the loop.
  absl::Status TakeFrame(std::string* payload);
  // One descriptor. An error ends the loop, and the leader has heard it.
  absl::Status RunStep(const std::string& payload, bool masks_follow);
  // Begins the step in hand, or runs it and answers.
  absl::Status DoStep(bool masks_follow);
  // Answers a step whose outcome is in hand, where this worker samples.
  absl::Status AnswerStep(uint64_t number);
  // Waits until so many steps at most are enqueued.
  absl::Status Collect(int left);
  // Whether more comes from the leader before the step that is enqueued ends, and soon.
  bool HearsSoon() const;
  absl::Status TellFailure(const absl::Status& status);  // returns it
  absl::Status TakeMasks();                              // the next frame: of the step in hand
  absl::Status TakeNote(const std::string& payload);
  absl::Status Answer(FrameType type, const google::protobuf::Message& message);

  const MemberOptions options_;
  const std::shared_ptr<LoadedShare> share_;
  const std::unique_ptr<Formation> formation_;
  const std::unique_ptr<Stage> stage_;
  const std::unique_ptr<KvMemberPart> kv_part_;
  ReceivedStep step_;
  StepOutcome outcome_;
  struct Enqueued {
    uint64_t number = 0;
    size_t samples = 0;
  };
  std::deque<Enqueued> enqueued_;  // steps that are not collected
  std::atomic<bool> ended_ = false;
  std::atomic<double> last_step_seconds_;  // of a steady clock
  std::mutex stop_mutex_;
  std::thread thread_;
};

}  // namespace tessera::worker
