// The engine's thread: takes submissions and cancels from a session, steps the core while there is
// work, and hands one SessionReply per step to the session.
//
// Flow: a session that may not take a reply (no credit, full outbox) pauses the steps; cancels
// still act at once. One that stays so longer than max_stall_seconds is closed. When a session ends
// or a newer one attaches, all its sequences end within the step under way. Nothing runs without a
// session. Where the workers of the replica can run no more steps, the session is closed with
// UNAVAILABLE and the reason, and so is every later one: its sequences go on at another replica.
//
// Thread rule: every method may be called from any thread, and none waits for a step but Stop and
// WaitIdle. The clock is called on the engine's thread. Ownership: owns core and formation, shares
// the loaded share, until Stop; shares the sink.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "proto/worker.pb.h"
#include "worker/engine/engine_core.h"
#include "worker/engine/grammar_compiler.h"
#include "worker/formation/formation.h"
#include "worker/model/loaded_share.h"

namespace tessera::worker {

// A session as the engine sees it. Called by the engine's thread only; calls return at once.
class ReplySink {
 public:
  virtual ~ReplySink() = default;
  virtual bool MayDeliver() = 0;
  virtual void Deliver(v1::SessionReply reply) = 0;  // only after MayDeliver said true
  virtual void Close(const absl::Status& reason) = 0;
};

// What an engine computes with, freed in reverse order.
struct EngineParts {
  std::shared_ptr<LoadedShare> share;
  std::shared_ptr<KvPort> kv_port = nullptr;  // null: its KV stays here
  std::unique_ptr<Formation> formation;       // null: the replica is this worker alone
  std::unique_ptr<EngineCore> core;
  std::unique_ptr<KvMover> mover = nullptr;             // of kv_port
  std::unique_ptr<GrammarCompiler> grammars = nullptr;  // null: grammars are refused
};

class Engine final : public KvMoverListener {
 public:
  using Clock = std::function<double()>;  // seconds, monotonic

  // Messages a session may have sent that the engine has not taken yet; more close the session.
  static constexpr size_t kMaxMailbox = 65536;

  // `on_broken` is called once, on the engine's thread, when no more steps can be run; may be
  // empty.
  Engine(EngineParts parts, const v1::Fence& fence, Clock clock, double max_stall_seconds = 30,
         std::function<void(const absl::Status& reason)> on_broken = nullptr);
  ~Engine() override { Stop(absl::UnavailableError("the worker is shutting down")); }
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const v1::Fence& fence() const { return fence_; }

  // Makes `sink` the session; the one before is closed.
  void Attach(std::shared_ptr<ReplySink> sink);
  // Ends all sequences of `sink`. Nothing happens when it is not attached.
  void Detach(std::shared_ptr<ReplySink> sink);
  void Submit(std::shared_ptr<ReplySink> sink, v1::Submit submit);
  void Cancel(std::shared_ptr<ReplySink> sink, v1::Cancel cancel);
  void Reserve(std::shared_ptr<ReplySink> sink, v1::Reserve reserve);
  void OnKvExpected(const KvKey& key, absl::StatusOr<v1::KvTarget> target) override;
  void OnKvArrived(const KvKey& key, const absl::Status& status) override;
  void OnKvSent(const KvKey& key, const absl::Status& status,
                const v1::KvTransfer& transfer) override;
  // The sink may deliver again.
  void Wake();

  // From now on submissions are refused with `reason`; what runs goes on. The session learns of it
  // at once, by a reply whose load says `draining`.
  void RefuseNew(const absl::Status& reason);
  // Waits until no sequence is left, timeout_seconds at most; returns how many are left.
  int64_t WaitIdle(double timeout_seconds);
  // Ends everything, closes the session with `reason`, ends the thread, leaves the formation and
  // lets go of the share. Idempotent.
  void Stop(const absl::Status& reason);

  v1::EngineLoad load() const;

 private:
  struct Attached {};
  struct Detached {};
  using News = std::function<void(EngineCore&)>;  // what movers and compiles report
  struct Command {
    std::shared_ptr<ReplySink> sink;
    std::variant<Attached, Detached, News, v1::Submit, v1::Cancel, v1::Reserve> what;
  };

  void Post(Command command);
  void Loop();
  // False: stop.
  bool WaitForWork(std::vector<Command>* commands);
  bool MayDeliver() const;
  void Apply(Command& command);
  void Compile(const KvKey& key, const std::string& grammar);
  void DropSession();
  void EndIfBroken();
  v1::EngineLoad LoadNow() const;
  void DeliverEvents();
  void CloseIfStalled();
  void Publish();

  const v1::Fence fence_;
  const Clock clock_;
  const double max_stall_seconds_;
  const std::function<void(const absl::Status& reason)> on_broken_;

  // Used by the engine's thread alone.
  EngineParts parts_;
  std::shared_ptr<ReplySink> session_;
  EngineCore::Events events_;
  double stalled_since_seconds_ = -1;  // < 0: not stalled
  bool draining_ = false;              // a copy of !refusal_.ok()
  bool told_draining_ = false;         // to this session
  bool broken_ = false;                // no more steps can be run

  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable idle_;
  std::vector<Command> mailbox_;
  bool mailbox_overflow_ = false;
  bool woken_ = false;
  bool stopping_ = false;
  absl::Status stop_reason_;
  absl::Status refusal_;  // not OK: draining
  v1::EngineLoad load_;
  int64_t sequences_ = 0;

  std::mutex stop_mutex_;
  std::thread thread_;
};

}  // namespace tessera::worker
