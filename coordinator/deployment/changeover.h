// One change from a plan to another while it is under way: what ends and what begins when, and
// whether the new plan comes up.
//
//   DRAINING  -> FORMING    replicas that go take nothing new; each ends when it has no work left,
//                           or has had its time. Where no replica stays, one of them serves until
//                           the others have ended. When all have the new plan is put in force
//   FORMING   -> OVER       every replica that comes serves
//   FORMING   -> RETURNING  one could not be formed, or took too long: those that come are ended
//   RETURNING -> OVER       the plan before is put in force again
//
// Replicas that both plans have alike serve on all the while.
//
// Thread rule: one thread. A decision on what it is shown; the owner carries it out.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/plan.pb.h"
#include "proto/planning.pb.h"
#include "scheduler/plan_change.h"

namespace tessera::coordinator {

struct ChangeoverLimits {
  double drain_seconds = 60;   // what a replica still computes then goes on elsewhere
  double form_seconds = 3600;  // until all that come must serve
};

class Changeover {
 public:
  // What there is of one replica, by its name.
  struct View {
    bool formed = false;   // its workers are configured for it, or being so
    bool serving = false;  // it takes requests
    int64_t work = 0;      // submissions and reservations that it has not ended
    std::string failure;   // why it cannot be formed; empty: it may yet
    bool reads = false;    // some worker of it read weights from files
  };
  using Look = std::function<View(const std::string& replica)>;
  // What the owner has to do now.
  struct Orders {
    std::vector<std::string> end;                  // replicas whose formations end
    const v1::DeploymentPlan* in_force = nullptr;  // is from now on; lives as long as this object
    bool is_new = false;                           // that is the plan after
    std::vector<std::string> forget;               // replicas whose history ends with that
    bool over = false;
  };

  Changeover(v1::DeploymentPlan from, v1::DeploymentPlan to, const ChangeoverLimits& limits,
             double now_seconds);

  // It takes no new requests, and is not formed again.
  bool Retires(const std::string& replica) const;
  // It is flipped or rebuilt.
  bool Comes(const std::string& replica) const { return coming_.contains(replica); }
  // To be called again and again until it is over.
  Orders Advance(const Look& look, double now_seconds);
  const scheduler::PlanChange& change() const { return change_; }
  // How far it is, for people: "draining r1 (2 requests)", as of the newest Advance.
  const std::string& progress() const { return progress_; }
  // Once it is over: what was done, without the epoch; or why the plan before is in force again.
  absl::StatusOr<v1::ApplyPlanReply> result() const;

 private:
  enum class Phase { kDraining, kForming, kReturning, kOver };

  void Drain(const Look& look, double now, Orders* orders);
  // Whether it has ended.
  bool DrainOne(const std::string& replica, const Look& look, double since, bool announced,
                double now, Orders* orders);
  // Of those that go, the one that serves until the others have ended; empty: another one stays.
  std::string ChooseLast(const Look& look) const;
  void Form(const Look& look, double now);
  void Return(const Look& look, Orders* orders);
  std::string Progress(const Look& look) const;

  v1::DeploymentPlan from_, to_;
  ChangeoverLimits limits_;
  scheduler::PlanChange change_;
  std::set<std::string> going_, coming_;  // by their names before and after
  Phase phase_ = Phase::kDraining;
  bool announced_ = false;  // replicas have heard that they retire
  std::string last_;        // retires when the others have ended
  bool last_announced_ = false;
  double last_since_seconds_ = -1;  // < 0: it serves
  double phase_began_seconds_;
  std::map<std::string, double> drained_seconds_, ready_seconds_;  // how long that took
  std::set<std::string> read_;                                     // replicas that read weights
  std::string failure_;
  std::string progress_;
};

// "replicas: 2 kept, 1 flipped; routes change"
std::string Describe(const scheduler::PlanChange& change);

}  // namespace tessera::coordinator
