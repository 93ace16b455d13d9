// The gRPC edge of a worker: service Worker of proto/worker.proto. Session is served from a
// completion queue (worker/session.h), everything else by callback reactors.
//
// States: unconfigured -> configuring -> serving -> configuring ...; a failed Configure leaves it
// unconfigured. A newer plan epoch replaces an older one: the engine's sequences end with ABORTED.
// What is loaded stays in memory where the newer plan has the same share for this worker, and is
// freed before another one loads. The same Configure again (a lost answer) is answered at once,
// unless the replica's workers have lost each other meanwhile. Every message is fenced
// (worker/fences.h) and, with a cluster token, authenticated.
//
// Thread rule: gRPC's threads call the handlers, none of which blocks; Configure, Profile
// and ProbeLink work on a thread of their own, one each at a time. The server lends ServeSessions a
// thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/probe.h"
#include "proto/worker.grpc.pb.h"
#include "worker/engine/engine_setup.h"
#include "worker/fences.h"
#include "worker/kept_answers.h"

namespace tessera::worker {

struct WorkerServiceOptions {
  uint64_t incarnation = 0;
  std::string cluster_token;  // empty: none is asked for
  SetupOptions setup;
  kernels::ProbeOptions probe;  // of Profile
  // LinkHub::Probe, of ProbeLink; null: the call is refused.
  std::function<absl::StatusOr<v1::ProbeLinkReply>(const v1::ProbeLinkRequest&)> probe_link;
  // ProbeKvCodecRate, of Profile; null: it says nothing.
  std::function<absl::StatusOr<double>()> probe_kv_codec;
  std::function<void(bool ready)> on_ready;  // serving or not any more (health); may be empty
};

using WorkerMethods = v1::Worker::WithAsyncMethod_Session<v1::Worker::WithCallbackMethod_Configure<
    v1::Worker::WithCallbackMethod_Profile<v1::Worker::WithCallbackMethod_ProbeLink<
        v1::Worker::WithCallbackMethod_FindKept<v1::Worker::Service>>>>>;

class WorkerService final : public WorkerMethods {
 public:
  explicit WorkerService(WorkerServiceOptions options);
  ~WorkerService() override;

  grpc::ServerWriteReactor<v1::ConfigureProgress>* Configure(
      grpc::CallbackServerContext* context, const v1::ConfigureRequest* request) override;
  grpc::ServerUnaryReactor* Profile(grpc::CallbackServerContext* context,
                                    const v1::ProfileRequest* request,
                                    v1::ProfileReply* reply) override;
  grpc::ServerUnaryReactor* ProbeLink(grpc::CallbackServerContext* context,
                                      const v1::ProbeLinkRequest* request,
                                      v1::ProbeLinkReply* reply) override;
  // What is kept outlives the plan that it was computed under.
  grpc::ServerUnaryReactor* FindKept(grpc::CallbackServerContext* context,
                                     const v1::FindKeptRequest* request,
                                     v1::KeptAnswer* reply) override;

  // Serves Session until `queue` is shut down and empty, as ServeSessions in worker/session.h says;
  // not before `begun` was called.
  void ServeSessionsFrom(grpc::ServerCompletionQueue& queue, std::function<void()> begun);

  uint64_t plan_epoch() const;  // that it serves, as a leader or member; 0: none
  v1::EngineLoad load() const;
  uint64_t leader_term() const { return term_.value(); }  // that this worker obeys; 0: none
  // Since it was made; without links, which are LinkHub's.
  v1::WorkerCounters counters() const;

  // Refuses what is new, waits until sequences ended or the time is over, then ends the rest.
  // Blocks; idempotent.
  void Shutdown(double drain_seconds);

 private:
  class ConfigureCall;

  // OK: start configuring. AlreadyExists: exactly this is being served.
  absl::Status BeginConfigure(const v1::ConfigureRequest& request);
  void AnswerConfigure(const std::shared_ptr<ConfigureCall>& call, absl::Status status);
  void RunConfigure(const std::shared_ptr<ConfigureCall>& call);
  std::shared_ptr<Engine> engine() const;
  // Ends what serves now, because of `reason`.
  void StopServing(const absl::Status& reason);
  // What is loaded already and fits the request; frees it where it does not.
  std::shared_ptr<LoadedShare> KeepShare(const v1::ConfigureRequest& request);
  void OnBroken(uint64_t epoch, const absl::Status& reason);
  absl::Status NotALeader() const;
  void DrainMember(double drain_seconds);

  const WorkerServiceOptions options_;
  const double began_seconds_;                // of the set-up's clock
  std::atomic<int64_t> busy_nanoseconds_{0};  // of all steps since
  HighestTerm term_;
  const std::shared_ptr<KeptAnswers> kept_;

  mutable std::mutex mutex_;
  std::shared_ptr<Engine> engine_;      // of a leader; null: unconfigured, configuring or a member
  std::unique_ptr<Member> member_;      // of another's replica
  v1::ConfigureRequest configured_;     // what these were made from
  std::shared_ptr<LoadedShare> share_;  // that they use, or used
  v1::ConfigureRequest share_terms_;    // of share_
  uint64_t broken_epoch_ = 0;           // of a formation that ended by itself; 0: none
  uint64_t formation_aborts_ = 0;       // formations that ended by themselves, so far
  v1::WorkerReady ready_;
  uint64_t configuring_epoch_ = 0;  // 0: not configuring
  bool stopping_ = false;
  bool profiling_ = false;
  bool probing_ = false;
  std::thread configure_thread_;
  std::thread profile_thread_;
  std::thread probe_thread_;
};

}  // namespace tessera::worker
