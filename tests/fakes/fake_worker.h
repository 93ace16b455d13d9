// A worker without a model: registers with a real coordinator, accepts whatever it is configured
// with, and gives every sequence its tokens at a fixed pace. Token number i of a sequence has the
// id FakeToken(i), so that whoever reads a stream sees what is lost, doubled or out of order.
//
// In a replica of several workers each member answers Configure when all members have got theirs
// (FakeRendezvous); one that fails ends the others with ABORTED, as links between real workers do.
//
// Thread rule: Start and the destructor from one thread, everything else from any. Pace: tokens of
// one sequence are 1 / tokens_per_second apart from its submission on; each is due on its own, so
// load is even.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "proto/worker.pb.h"

namespace tessera {

inline constexpr int32_t kFakeTokenCycle = 300;
inline int32_t FakeToken(int64_t index) {
  return static_cast<int32_t>(100 + index % kFakeTokenCycle);
}

// Where members of one replica and plan epoch meet; shared by the fakes of a test.
class FakeRendezvous {
 public:
  static std::shared_ptr<FakeRendezvous> Make();
  virtual ~FakeRendezvous() = default;

  using Done = std::function<void(const absl::Status&)>;
  // `done` is called once: OK when all peers have joined, ABORTED when one of them failed.
  virtual void Join(const v1::ConfigureRequest& request, Done done) = 0;
  // Ends all members that wait, and those that come later.
  virtual void Fail(const v1::ConfigureRequest& request, const absl::Status& reason) = 0;
};

struct FakeWorkerOptions {
  std::string coordinator;  // host:port of its gRPC
  std::string name = "fake/0";
  // For sequences that ask for logprobs, and for the others.
  double tokens_per_second = 1;
  double logprobs_tokens_per_second = 1;
  uint64_t plan_epoch = 0;  // that it registers with, as of an earlier coordinator
  int64_t memory_bytes = int64_t{1} << 40;
  std::string gpu_name = {};                   // empty: it is none
  std::string address = {};                    // that it registers; empty: its own
  std::shared_ptr<FakeRendezvous> rendezvous;  // for replicas of several workers
};

class FakeWorker {
 public:
  static std::unique_ptr<FakeWorker> Start(const FakeWorkerOptions& options);
  virtual ~FakeWorker() = default;
  virtual int64_t running() const = 0;
  virtual int64_t cancelled() const = 0;  // choices
  virtual int64_t sent_tokens() const = 0;

  virtual int64_t configures() const = 0;               // Configure calls that have come
  virtual v1::ConfigureRequest configured() const = 0;  // the newest
  // Further ones with the epoch and the terms that it serves; with other terms they are refused.
  virtual int64_t taken_up() const = 0;
  virtual int64_t sessions() const = 0;  // that have been opened
  // What comes from now on reports progress only, until Release.
  virtual void HoldConfigures() = 0;
  // Of those that are held.
  virtual void Report(const std::string& phase, int64_t bytes_done, int64_t bytes_total) = 0;
  virtual void Release() = 0;
  // Configures end with this; OK: they succeed again.
  virtual void FailConfigures(const absl::Status& reason) = 0;
  // As after SIGTERM: heartbeats and replies say so, what runs goes on.
  virtual void Drain() = 0;
  // The plan stays: another session will do.
  virtual void EndSessions(const absl::Status& reason) = 0;
  // As a leader does when a member or a link is gone: the session ends with this, and no plan is
  // served any more.
  virtual void BreakFormation(const absl::Status& reason) = 0;
};

}  // namespace tessera
