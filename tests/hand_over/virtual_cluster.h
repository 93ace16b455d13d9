// A coordinator, prefill and decode replicas, and the links between them, in one thread and on a
// clock of their own: the daemon's request flow and engine cores, with scripted workers
// (scripted_executor.h: a token is a hash of all tokens before it, read through the KV pool), a
// scripted session to each leader and a scripted way of KV. Anything may die, stall or be slow at
// any moment; nothing sleeps.
//
// What the scripted parts take over from the real ones: a session's messages come in order until it
// ends, both sides hear of its end; a process that does not answer for kHeartbeatSeconds is given
// up; a connection of KV whose peer takes nothing for kPieceSeconds is given up; a room whose lease
// ends is given up; what a paused process is sent, it reads later.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/flow/request_flow.h"
#include "tests/hand_over/scripted_mover.h"
#include "worker/engine/engine_core.h"
#include "worker/engine/kv_mover.h"

namespace tessera::tests {

// How far a prompt that is handed over has come.
enum class Phase { kReserve, kPrefill, kPush, kJoin, kDecode };

struct Client {
  int64_t prompt_tokens = 0;
  int32_t max_tokens = 0;
  int32_t choices = 1;
  std::vector<int32_t> prompt;
  std::vector<std::vector<int32_t>> tokens;  // by choice
  bool accepted = false;
  bool cancelled = false;
  bool lost = false;  // with its coordinator
  int ends = 0;
  absl::Status status;
  double since_seconds = 0;        // the newest token, or since it was accepted
  double longest_gap_seconds = 0;  // without a token
  int prefill = -1;                // replicas of its hand-over, as far as they are known
  int decode = -1;
  std::unique_ptr<coordinator::GenerationHandle> handle;
};

class VirtualCluster {
 public:
  static constexpr double kTick = 0.01;
  static constexpr double kStepSeconds = 0.02;
  static constexpr double kHeartbeatSeconds = 5;
  static constexpr double kPieceSeconds = 10;
  static constexpr double kRecoverySeconds = 5;  // half of a room's lease
  static constexpr double kRestartSeconds = 3;
  static constexpr double kKvTokensPerSecond = 100;

  struct Options {
    int prefills = 2;
    int decodes = 2;
    int64_t prefill_blocks = 40;
    int64_t decode_blocks = 40;
    int lanes = 1;
  };

  explicit VirtualCluster(const Options& options);
  ~VirtualCluster();

  double now() const { return now_; }
  // Sent until it is accepted.
  size_t Ask(int64_t prompt_tokens, int32_t max_tokens, int32_t choices);
  void Cancel(size_t client);
  const std::vector<std::unique_ptr<Client>>& clients() const { return clients_; }
  std::vector<int32_t> Expected(const Client& client, int32_t choice, int64_t count) const;

  // Called when a client's prompt reaches a phase; may only call At.
  std::function<void(Phase phase, size_t client)> on_phase;
  void At(double seconds, std::function<void()> what) { due_.emplace(seconds, std::move(what)); }

  // Faults; each ends after `seconds`. Replicas by index, prefill ones first.
  void Kill(int replica);  // and start it again
  void Pause(int replica, double seconds);
  void Slow(int replica, double factor, double seconds);
  void BreakSession(int replica, double seconds);
  void StallSession(int replica, double seconds);
  void BreakKv(double seconds);
  void StallKv(double seconds);
  void SlowKv(double factor, double seconds);
  // Who was asked is forgotten; workers are found again.
  void RestartCoordinator();

  void Advance();  // by a tick
  // All is well, and nobody waits.
  bool Idle() const;
  // Fails the test where a replica holds a block, a room or a sequence, or the coordinator counts
  // anything.
  void CheckNothingHeld();
  int64_t hand_overs() const { return hand_overs_; }  // whose KV arrived
  int64_t failed_hand_overs() const { return failed_hand_overs_; }

 private:
  using Shipment = ScriptedMover::Shipment;
  class Session;
  class Sink;
  struct Replica;

  std::unique_ptr<coordinator::RequestFlow> MakeFlow();
  void StartProcess(Replica& replica);
  bool Answers(const Replica& replica) const;
  void Reach(Phase phase, int replica, const std::vector<int32_t>& prompt);
  void Deliver(Replica& replica);
  void Apply(Replica& replica, const v1::SessionRequest& message);
  void Pump(Replica& replica);
  void EndSession(Replica& replica, const std::string& reason);
  void WatchMembers();
  void MoveKv(Replica& sender);
  // False: it has ended.
  bool MoveKvOf(Replica& sender, const worker::KvKey& key, Shipment& shipment);
  void MovePieces(const Replica& sender, Replica& receiver, const worker::KvKey& room,
                  Shipment& shipment);
  void FailShipment(Replica& sender, const worker::KvKey& key, const Shipment& shipment,
                    const absl::Status& status, bool receiver_hears);
  void EndLeases(Replica& receiver);
  void TryStart(Client& client, size_t index);

  const Options options_;
  double now_ = 0;
  int64_t ticks_ = 0;
  double kv_broken_until_ = 0;
  double kv_stalled_until_ = 0;
  double kv_slow_until_ = 0;
  double kv_factor_ = 1;
  double coordinator_back_ = 0;
  int64_t tickets_ = 0;
  int64_t hand_overs_ = 0;
  int64_t failed_hand_overs_ = 0;
  std::multimap<double, std::function<void()>> due_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::shared_ptr<coordinator::RequestFlow> flow_;
  std::vector<scheduler::ReplicaLoad> loads_;  // of the router's newest decision
  std::vector<std::unique_ptr<Client>> clients_;
  std::map<std::vector<int32_t>, size_t> by_prompt_;
};

}  // namespace tessera::tests
