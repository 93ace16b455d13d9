// One change of the plans in force while it is under way: what ends and what begins when, and
// whether the new plans come up. The only way in which plans come in force, the first ones too.
//
//   AT ONCE   -> OVER       the new plans are put in force, whether they come up or not
//
//   DRAINING  -> FORMING    replicas that go take nothing new; each ends when it has no work left,
//                           or has had its time. Where no replica of a model stays, one of them
//                           serves until the others have ended. When all have, the new plans are
//                           put in force
//   FORMING   -> OVER       every replica that comes serves
//   FORMING   -> RETURNING  one could not be formed, or took too long: those that come are ended
//   RETURNING -> OVER       the plans before are put in force again
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
#include "coordinator/deployment/plan_set.h"
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
    std::vector<std::string> end;       // replicas whose workers are given up
    const PlanSet* in_force = nullptr;  // is from now on; lives as long as this object
    std::vector<std::string> forget;    // replicas whose history ends with that
    bool over = false;
  };

  // Both are plans of the same models. `on_trial`: as in NextPlan (plan_source.h).
  Changeover(PlanSet from, PlanSet to, bool on_trial, const ChangeoverLimits& limits,
             double now_seconds);

  // It takes no new requests, and is not formed again.
  bool Retires(const std::string& replica) const;
  // To be called again and again until it is over; what begins at once is over after one call.
  Orders Advance(const Look& look, double now_seconds);
  bool on_trial() const { return on_trial_; }
  const scheduler::PlanChange& change() const { return change_; }
  // How far it is, for people: "draining r1 (2 requests)", as of the newest Advance.
  const std::string& progress() const { return progress_; }
  // Once it is over: what was done, without the epoch; or why the plans before are in force again.
  absl::StatusOr<v1::ApplyPlanReply> result() const;

 private:
  enum class Phase { kAtOnce, kDraining, kForming, kReturning, kOver };

  void Drain(const Look& look, double now, Orders* orders);
  // Whether it has ended.
  bool DrainOne(const std::string& replica, const Look& look, double since, bool announced,
                double now, Orders* orders);
  // One for each model, of its replicas that go: it serves until the others have ended. None where
  // another one stays.
  std::set<std::string> ChooseLast(const Look& look) const;
  void Form(const Look& look, double now);
  void Return(const Look& look, Orders* orders);
  std::string Progress(const Look& look) const;

  PlanSet from_, to_;
  bool on_trial_;
  ChangeoverLimits limits_;
  std::vector<scheduler::PlanChange> changes_;  // by model
  scheduler::PlanChange change_;                // of all of them
  std::set<std::string> going_, coming_;        // by their names before and after
  Phase phase_;
  bool announced_ = false;      // replicas have heard that they retire
  std::set<std::string> last_;  // retire when the others have ended
  bool last_announced_ = false;
  double last_since_seconds_ = -1;  // < 0: they serve
  double phase_began_seconds_;
  std::map<std::string, double> drained_seconds_, ready_seconds_;  // how long that took
  std::set<std::string> read_;                                     // replicas that read weights
  std::string failure_;
  std::string progress_;
};

// "replicas: 2 kept, 1 flipped; routes change"
std::string Describe(const scheduler::PlanChange& change);

}  // namespace tessera::coordinator
