// The workers of one replica, joined: links to the others, as one member sees them.
//
// Joining (Formation::Join) opens every link that this member needs: control between the leader and
// each member, bulk between the ranks of a stage and between the first ranks of stages that follow
// each other. Of two members the one with the higher index dials. Then each member tells the leader
// how many KV blocks it has room for, and the leader answers all with the smallest numbers. From
// then on leader and members exchange heartbeats on links of their own, from a thread that no step
// holds up: who is silent for FormationTimes::silence_seconds is lost, and every link of this
// member is shut down, which ends the formation for the others too. The leader's end with its
// heartbeats: so a member hears of it whose only thread waits for a device.
//
// Thread rule: Join blocks, on the thread of the caller; Shutdown may be called from any thread.
// Errors name the member that is missing or refuses.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/collectives/device_sums.h"
#include "kernels/collectives/group.h"
#include "kernels/collectives/group_maker.h"
#include "kernels/links/link.h"
#include "kernels/links/link_monitor.h"
#include "proto/layers/kv_sizes.h"
#include "proto/worker.pb.h"
#include "worker/formation/stage_hops.h"
#include "worker/step/stage_runner.h"

namespace tessera::worker {

// Where a worker is in its replica, from a ConfigureRequest with peers.
struct FormationPlace {
  int self = 0;              // index in peers
  int leader = 0;            // stage 0, rank 0
  int sampler = 0;           // last stage, rank 0
  int previous = -1;         // rank 0 of the stage before, where this is rank 0; else -1
  int next = -1;             // the same of the stage behind
  std::vector<int> ranks;    // of this stage, in rank order, this member included
  std::vector<int> control;  // of the leader: all others; of others: the leader
  std::vector<int> bulk;     // previous, next, and the other ranks of the stage
};

// InvalidArgument where peers do not describe a replica: an empty stage, ranks that are not 0, 1,
// ..., this worker not among them.
absl::StatusOr<FormationPlace> PlaceOf(const v1::ConfigureRequest& request);

// "r0 stage 1 rank 0 (box/2)": for errors and logs.
std::string MemberName(const v1::ConfigureRequest& request, int member);

struct FormationTimes {
  // For another member to join; it may still be loading.
  double join_seconds = 3600;
  // Without a heartbeat; several ping intervals.
  double silence_seconds = 5;
  double ping_interval_seconds = 0.5;
  // How long another member is tried before JoinWatch hears of it.
  double blocked_after_seconds = 5;
};

// Who waits for a formation. Called on the thread that joins.
struct JoinWatch {
  std::function<bool()> cancelled;  // asked about every second; true ends the wait
  // Hears which member no link reaches, at which addresses, why, and what to do; empty: one does
  // now. May be null.
  std::function<void(const std::string&)> blocked = nullptr;
};

class Formation {
 public:
  // Opens the link of `kind` with `member`; made by LinkHub, by tests from link pairs.
  using Opener =
      std::function<absl::StatusOr<std::unique_ptr<kernels::Link>>(int member, v1::LinkKind kind)>;

  // `kv`: what this member's pool has: blocks, seats (0: its layers keep no states) and snapshots
  // of them. All members keep windows apart, or none does. `cancelled` is asked about every second
  // and ends the wait. `maker`: of its device, which outlives the formation; null: none.
  static absl::StatusOr<std::unique_ptr<Formation>> Join(const v1::ConfigureRequest& request,
                                                         KvBlocks kv, const Opener& open,
                                                         const FormationTimes& times,
                                                         const std::function<bool()>& cancelled,
                                                         kernels::GroupMaker* maker = nullptr);
  ~Formation();

  const FormationPlace& place() const { return place_; }
  // What the replica has: the least of any member.
  KvBlocks kv() const { return kv_; }
  kernels::Link* control(int member) const { return control_[member].get(); }
  // This member's part in a step.
  StageLinks stage_links() const;
  // All bulk links, to shut down with the control links; of the leader its heartbeats too.
  std::vector<kernels::Link*> bulk() const;
  // How the ranks of this stage sum, for people: "NCCL 2.28.9". Empty: there is one.
  std::string DescribeSums() const;

  // Sums of this stage's devices; null: none.
  const kernels::DeviceSums* sums() const { return sums_.get(); }
  const StageHops& hops() const { return hops_; }
  // All by which this member's device waits for others, to abort where links are shut down.
  std::vector<kernels::DeviceSums*> device_waits() const;

  void Shutdown(const absl::Status& reason);

 private:
  Formation() = default;

  absl::Status OpenLinks(const v1::ConfigureRequest& request, const Opener& open);
  absl::Status OpenHops(double wait_seconds, kernels::GroupMaker* maker,
                        const std::function<bool()>& cancelled);
  absl::Status BeginHeartbeats(const v1::ConfigureRequest& request, const Opener& open,
                               const FormationTimes& times);
  absl::Status AgreeAsLeader(const v1::ConfigureRequest& request, double wait_seconds,
                             const std::function<bool()>& cancelled);
  absl::Status AgreeAsMember(const v1::ConfigureRequest& request, double wait_seconds,
                             const std::function<bool()>& cancelled);

  FormationPlace place_;
  KvBlocks kv_{0};
  std::vector<std::shared_ptr<kernels::Link>> control_;  // by member; null where there is none
  std::vector<std::shared_ptr<kernels::Link>> bulk_;  // likewise; those of ranks are group_'s too
  std::vector<std::shared_ptr<kernels::Link>> heartbeats_;
  std::unique_ptr<kernels::Group> group_;      // null: a stage of one rank
  std::unique_ptr<kernels::DeviceSums> sums_;  // null: the group sums everything
  StageHops hops_;
  std::unique_ptr<kernels::LinkMonitor> monitor_;  // ends before the links
};

}  // namespace tessera::worker
