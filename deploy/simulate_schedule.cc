#include "deploy/simulate_schedule.h"

#include <algorithm>
#include <set>
#include <sstream>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "deploy/plan_file.h"
#include "proto/layers/layers.h"
#include "proto/quantity.h"
#include "scheduler/plan_check/plan_check.h"
#include "scheduler/planner/advice/what_if.h"
#include "scheduler/planner/planner.h"
#include "scheduler/planner/report/assumption_text.h"
#include "scheduler/planner/report/move_cost.h"
#include "third_party/absl/str_cat.h"

namespace tessera::deploy {
namespace {

using scheduler::ScheduledChange;

constexpr char kNewPlan[] = "new";

// A --change before it is known which replicas there are.
struct NamedChange {
  std::string text;
  std::string replica;
  ScheduledChange change;
};

struct Replan {
  std::string text;
  std::string file;
  double at_seconds = 0;
};

absl::StatusOr<double> Seconds(const std::string& text) {
  if (text.empty()) return absl::InvalidArgumentError("when?");
  return ParseQuantity(text, Dimension::kSeconds);
}

absl::StatusOr<NamedChange> ParseChange(const std::string& text) {
  const auto error = [&](std::string_view reason) {
    return absl::InvalidArgumentError(
        StrCat("--change: \"", text, "\": ", reason,
               "; write \"r0 lost 10 s\", \"r0 back 40 s\" or \"r1 slow 2.5 5 s\""));
  };
  std::istringstream words(text);
  std::string what, time;
  NamedChange out;
  out.text = text;
  words >> out.replica >> what;
  if (what == "lost") {
    out.change.kind = ScheduledChange::Kind::kLose;
  } else if (what == "back") {
    out.change.kind = ScheduledChange::Kind::kRecover;
  } else if (what == "slow") {
    out.change.kind = ScheduledChange::Kind::kSlow;
    if (!(words >> out.change.factor) || !(out.change.factor > 0)) return error("by what factor?");
  } else {
    return error("what happens to it?");
  }
  std::getline(words >> std::ws, time);
  const absl::StatusOr<double> seconds = Seconds(time);
  if (!seconds.ok()) return error(StdView(seconds.status().message()));
  out.change.at_seconds = *seconds;
  return out;
}

absl::StatusOr<Replan> ParseReplan(const std::string& text,
                                   const std::vector<NamedChange>& changes) {
  const auto error = [&](std::string_view reason) {
    return absl::InvalidArgumentError(StrCat("--replan: \"", text, "\": ", reason,
                                             "; write \"next.json at 60 s\", \"next.json after r0 ",
                                             "lost 5 s\", or \"new\" in place of the file"));
  };
  Replan out;
  out.text = text;
  const size_t at = text.rfind(" at "), after = text.rfind(" after ");
  if (at == std::string::npos && after == std::string::npos) return error("when?");
  if (at != std::string::npos && (after == std::string::npos || at > after)) {
    out.file = text.substr(0, at);
    const absl::StatusOr<double> seconds = Seconds(text.substr(at + 4));
    if (!seconds.ok()) return error(StdView(seconds.status().message()));
    out.at_seconds = *seconds;
    return out;
  }
  out.file = text.substr(0, after);
  std::istringstream words(text.substr(after + 7));
  std::string replica, lost, time;
  words >> replica >> lost;
  std::getline(words >> std::ws, time);
  if (lost != "lost") return error("after what?");
  const absl::StatusOr<double> seconds = Seconds(time);
  if (!seconds.ok()) return error(StdView(seconds.status().message()));
  const auto loss = std::find_if(changes.begin(), changes.end(), [&](const NamedChange& c) {
    return c.replica == replica && c.change.kind == ScheduledChange::Kind::kLose;
  });
  if (loss == changes.end()) return error(StrCat("no --change says that ", replica, " is lost"));
  out.at_seconds = loss->change.at_seconds + *seconds;
  return out;
}

class Reader {
 public:
  Reader(const v1::DeploymentPlan& plan, const PlanQuestion& question,
         const scheduler::ClusterGraph& graph, const scheduler::PlanReplicaOptions& options)
      : running_(plan), question_(question), graph_(graph), options_(options) {}

  absl::StatusOr<SimulationSchedule> Read(const ScheduleFlags& flags,
                                          scheduler::PlanReplicas replicas) {
    out_.timeline = scheduler::StartWith(std::move(replicas));
    for (const std::string& text : flags.changes) {
      absl::StatusOr<NamedChange> change = ParseChange(text);
      if (!change.ok()) return change.status();
      changes_.push_back(*std::move(change));
    }
    std::vector<Replan> replans;
    for (const std::string& text : flags.replans) {
      absl::StatusOr<Replan> replan = ParseReplan(text, changes_);
      if (!replan.ok()) return replan.status();
      replans.push_back(*std::move(replan));
    }
    std::stable_sort(replans.begin(), replans.end(),
                     [](const Replan& a, const Replan& b) { return a.at_seconds < b.at_seconds; });
    for (const Replan& replan : replans) {
      if (absl::Status s = Switch(replan); !s.ok()) return s;
    }
    for (const NamedChange& change : changes_) {
      if (absl::Status s = Resolve(change); !s.ok()) return s;
    }
    out_.changes.insert(out_.changes.end(), out_.timeline.changes.begin(),
                        out_.timeline.changes.end());
    return std::move(out_);
  }

 private:
  static absl::Status Refused(const Replan& replan, const absl::Status& why) {
    return absl::InvalidArgumentError(
        StrCat("--replan: \"", replan.text, "\": ", StdView(why.message())));
  }

  absl::Status Switch(const Replan& replan) {
    absl::StatusOr<v1::DeploymentPlan> next =
        replan.file == kNewPlan ? PlanWithoutLost(replan.at_seconds) : ReadPlanFile(replan.file);
    if (!next.ok()) return Refused(replan, next.status());
    const scheduler::PlannerInput& input = question_.input;
    if (absl::Status s = scheduler::CheckPlanOn(*next, input.cluster, input.catalogue); !s.ok())
      return Refused(replan, s);
    if (LayerCount(next->model()) != LayerCount(running_.model())) {
      return Refused(replan,
                     absl::InvalidArgumentError(
                         "it is for another model than the running plan: plan for the same model"));
    }
    const absl::StatusOr<scheduler::PlanReplicas> replicas =
        ReplicasOfPlan(*next, graph_, options_);
    if (!replicas.ok()) return Refused(replan, replicas.status());
    std::vector<scheduler::ReplicaSwitch> switches;
    size_t stay = 0;
    for (const scheduler::ReplicaMove& move :
         MovesOf(question_.input.cluster, question_.options.move, running_, *next)) {
      switches.push_back({move.stays_as, move.ready_seconds});
      stay += move.stays_as >= 0 ? 1 : 0;
    }
    if (absl::Status s = SwitchTo(*replicas, switches, replan.at_seconds, &out_.timeline); !s.ok())
      return Refused(replan, s);
    out_.assumptions.push_back(absl::StrFormat(
        "re-planning at %g s to %s: %d of %d replicas stay, the others' weights are loaded at %g "
        "s; replicas that the new plan drops stop at once, and their requests continue on others",
        replan.at_seconds, replan.file == kNewPlan ? "a plan made at that time" : replan.file, stay,
        replicas->replicas.size(), out_.timeline.settled_seconds));
    if (out_.timeline.usd_per_hour.size() == 2)
      out_.assumptions.push_back(
          scheduler::MoveAssumption(scheduler::MoveTermsOf(question_.options.move)));
    running_ = *std::move(next);
    return absl::OkStatus();
  }

  // For what is left of the cluster when replicas are lost, their machines with them.
  absl::StatusOr<v1::DeploymentPlan> PlanWithoutLost(double now) const {
    std::set<std::string> machines, lost;
    for (const v1::Replica& replica : running_.replicas()) {
      if (!IsLost(replica.name(), now)) continue;
      lost.insert(replica.name());
      for (const v1::Stage& stage : replica.stages()) {
        for (const v1::PlannedWorker& worker : stage.workers())
          machines.insert(worker.device().substr(0, worker.device().rfind('/')));
      }
    }
    const auto error = [&](std::string_view reason) {
      return absl::InvalidArgumentError(
          lost.empty() ? std::string(reason)
                       : StrCat("with ", absl::StrJoin(lost, ", "), " lost, and ",
                                lost.size() == 1 ? "its" : "their", " machines (",
                                absl::StrJoin(machines, ", "), "), ", reason,
                                "; write the file of a plan in place of \"new\", or describe more ",
                                "machines in --cluster"));
    };
    if (machines.size() == graph_.machines().size()) return error("no machine is left to plan for");
    scheduler::PlannerInput input = question_.input;
    if (absl::Status s = scheduler::RemoveMachines(machines, &input.cluster); !s.ok())
      return error(StdView(s.message()));
    scheduler::PlannerOptions options = question_.options;
    options.weight_dtype = running_.weight_dtype();
    options.kv_dtype = running_.kv_dtype();
    absl::StatusOr<v1::DeploymentPlan> plan = MakePlan(input, options);
    if (!plan.ok()) return error(StdView(plan.status().message()));
    return plan;
  }

  // At `now`; what stands before `next` in the list where one is given.
  bool IsLost(const std::string& replica, double now, const NamedChange* next = nullptr) const {
    double last = -1;
    bool lost = false;
    for (const NamedChange& c : changes_) {
      const double at = c.change.at_seconds;
      if (c.replica != replica || c.change.kind == ScheduledChange::Kind::kSlow) continue;
      if (at > now || at < last || (next != nullptr && at == now && &c >= next)) continue;
      last = at;
      lost = c.change.kind == ScheduledChange::Kind::kLose;
    }
    return lost;
  }

  // Lost twice, or back without having been lost, is a slip of whoever wrote it.
  absl::Status CheckFollows(const NamedChange& named) const {
    const bool lost = IsLost(named.replica, named.change.at_seconds, &named);
    if (named.change.kind == ScheduledChange::Kind::kRecover && !lost) {
      return absl::InvalidArgumentError(
          StrCat(named.replica, " is not lost at that time: give an earlier --change \"",
                 named.replica, " lost ...\""));
    }
    if (named.change.kind == ScheduledChange::Kind::kLose && lost) {
      return absl::InvalidArgumentError(StrCat(named.replica,
                                               " is lost already: leave one out, or ",
                                               "give a --change with \"back\" between them"));
    }
    return absl::OkStatus();
  }

  absl::Status Resolve(const NamedChange& named) {
    const auto& replicas = out_.timeline.replicas.replicas;
    const auto found = std::find_if(replicas.begin(), replicas.end(),
                                    [&](const auto& r) { return r.name == named.replica; });
    const auto error = [&](std::string_view reason) {
      return absl::InvalidArgumentError(StrCat("--change: \"", named.text, "\": ", reason));
    };
    if (found == replicas.end()) {
      std::string names;
      for (const auto& replica : replicas) names += StrCat(names.empty() ? "" : ", ", replica.name);
      return error(StrCat("the plan has no replica ", named.replica, "; there are ", names));
    }
    ScheduledChange change = named.change;
    change.replica = static_cast<int>(found - replicas.begin());
    const double gone = out_.timeline.gone_seconds[static_cast<size_t>(change.replica)];
    if (change.at_seconds >= gone) {
      return error(absl::StrFormat("a --replan drops it at %g s: choose an earlier time", gone));
    }
    if (absl::Status s = CheckFollows(named); !s.ok()) return error(StdView(s.message()));
    out_.changes.push_back(change);
    return absl::OkStatus();
  }

  v1::DeploymentPlan running_;
  const PlanQuestion& question_;
  const scheduler::ClusterGraph& graph_;
  const scheduler::PlanReplicaOptions& options_;
  std::vector<NamedChange> changes_;
  SimulationSchedule out_;
};

}  // namespace

absl::StatusOr<SimulationSchedule> ReadSchedule(const ScheduleFlags& flags,
                                                const v1::DeploymentPlan& plan,
                                                scheduler::PlanReplicas replicas,
                                                const PlanQuestion& question,
                                                const scheduler::ClusterGraph& graph,
                                                const scheduler::PlanReplicaOptions& options) {
  return Reader(plan, question, graph, options).Read(flags, std::move(replicas));
}

}  // namespace tessera::deploy
