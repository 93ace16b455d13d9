// What the replanner does with what the search says: applied, suggested, or left alone.
#include "coordinator/replanning/replanner.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace tessera::coordinator {
namespace {

using Catch::Contains;

v1::DeploymentPlan Plan(const std::string& replica, double requests_per_second) {
  v1::DeploymentPlan plan;
  plan.add_replicas()->set_name(replica);
  plan.mutable_basis()->set_prompt_tokens(100);
  plan.mutable_basis()->set_uncached_prompt_tokens(100);
  plan.mutable_basis()->set_output_tokens(20);
  plan.mutable_prediction()->set_requests_per_second(requests_per_second);
  plan.mutable_prediction()->set_time_to_first_token_seconds(0.1);
  return plan;
}

// A coordinator whose plans are scripted, and whose requests are twenty times as long as planned.
struct Scripted {
  Scripted(ReplanMode mode, double roles_gain, double whole_rate) {
    ReplannerOptions options;
    options.mode = mode;
    options.watch = watch;
    options.look_seconds = 0.005;
    options.now_seconds = [this] { return now.load(); };
    options.running = [this] {
      std::lock_guard lock(mutex);
      return std::pair(running, epoch);
    };
    options.changing = [this] { return changing.load(); };
    options.roles = [this, roles_gain](const v1::DeploymentPlan& plan, const v1::Workload& workload,
                                       const scheduler::SearchWatch&) {
      std::lock_guard lock(mutex);
      ++searches;
      asked = workload;
      scheduler::RoleChoice choice;
      choice.plan = Plan("other roles", 10 * (1 + roles_gain));
      choice.running.requests_per_second = 10;
      choice.figures.requests_per_second = 10 * (1 + roles_gain);
      choice.gain = roles_gain;
      choice.plan.mutable_replicas(0)->set_name(plan.replicas(0).name());
      choice.plan.mutable_replicas(0)->set_role(v1::REPLICA_ROLE_DECODE);
      return choice;
    };
    options.whole = [whole_rate](const v1::Workload&, const scheduler::SearchWatch&) {
      return Plan("whole", whole_rate);
    };
    options.apply = [this](v1::DeploymentPlan plan, auto done) {
      {
        std::lock_guard lock(mutex);
        applied.push_back(plan);
        running = plan;
        ++epoch;
      }
      done(v1::ApplyPlanReply());
    };
    replanner = std::make_unique<Replanner>(std::move(options));
  }
  ~Scripted() { replanner.reset(); }

  // So many seconds of requests, four a second.
  void Serve(double seconds, int64_t prompt_tokens = 2000) {
    for (int i = 0; i < seconds * 4; ++i) {
      now = now + 0.25;
      watch->Add({.prompt_tokens = prompt_tokens, .output_tokens = 20}, now);
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    // Looks come in real time.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  std::vector<v1::DeploymentPlan> Applied() {
    std::lock_guard lock(mutex);
    return applied;
  }

  std::shared_ptr<GuardedWatch> watch = std::make_shared<GuardedWatch>();
  std::atomic<double> now = 1000;
  std::atomic<bool> changing = false;
  std::mutex mutex;  // guards what follows
  v1::DeploymentPlan running = Plan("r0", 10);
  uint64_t epoch = 1;
  std::atomic<int> searches = 0;
  v1::Workload asked;
  std::vector<v1::DeploymentPlan> applied;
  std::unique_ptr<Replanner> replanner;
};

}  // namespace

TEST_CASE("roles that are worth a tenth more are applied; the search sees what was served") {
  Scripted scripted(ReplanMode::kRoles, 0.3, 10);
  scripted.Serve(20, 100);
  CHECK(scripted.searches.load() == 0);
  scripted.Serve(40);
  REQUIRE(scripted.Applied().size() == 1);
  CHECK(scripted.Applied()[0].replicas(0).role() == v1::REPLICA_ROLE_DECODE);
  CHECK(scripted.asked.requests_per_second() == 0);  // none was asked for
  const v1::WorkloadClass& seen = scripted.asked.classes(0);
  CHECK(seen.lengths(seen.lengths_size() - 1).prompt_tokens() == 2000);
  CHECK(scripted.watch->advice().empty());
}

TEST_CASE("roles that bring little stay, and the same requests are not judged again") {
  Scripted scripted(ReplanMode::kRoles, 0.09, 10);
  scripted.Serve(300);
  CHECK(scripted.Applied().empty());
  CHECK(scripted.searches.load() >= 1);
  CHECK(scripted.searches.load() <= 2);  // while requests were turning, and after
}

TEST_CASE("a whole plan is suggested, or applied where that is asked for") {
  Scripted roles(ReplanMode::kRoles, 0, 15);
  roles.Serve(40);
  CHECK(roles.Applied().empty());
  CHECK_THAT(roles.watch->advice(), Contains("50 % better") && Contains("--replan auto"));
  CHECK_THAT(roles.watch->advice(), !Contains("\n"));
  Scripted automatic(ReplanMode::kAuto, 0, 15);
  automatic.Serve(40);
  REQUIRE(automatic.Applied().size() == 1);
  CHECK(automatic.Applied()[0].replicas(0).name() == "whole");
  CHECK(automatic.watch->advice().empty());
  Scripted none(ReplanMode::kAuto, 0, 10.9);
  none.Serve(40);
  CHECK(none.Applied().empty());
}

TEST_CASE("nothing is judged while another plan is being applied") {
  Scripted scripted(ReplanMode::kAuto, 1, 100);
  scripted.changing = true;
  scripted.Serve(40);
  CHECK(scripted.searches.load() == 0);
  scripted.changing = false;
  scripted.Serve(10);
  CHECK(scripted.searches.load() >= 1);
}

TEST_CASE("a replanner that goes ends its search") {
  ReplannerOptions options;
  std::atomic<bool> searching = false;
  std::atomic<double> now = 1000;
  const auto watch = std::make_shared<GuardedWatch>();
  options.watch = watch;
  options.look_seconds = 0.005;
  options.now_seconds = [&] { return now.load(); };
  options.running = [] { return std::pair(Plan("r0", 10), uint64_t{1}); };
  options.changing = [] { return false; };
  options.roles =
      [&](const auto&, const auto&,
          const scheduler::SearchWatch& search) -> absl::StatusOr<scheduler::RoleChoice> {
    searching = true;
    while (!search.Stopped()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return absl::CancelledError("stopped");
  };
  auto replanner = std::make_unique<Replanner>(std::move(options));
  for (int i = 0; i < 5000 && !searching; ++i) {
    now = now + 0.25;
    watch->Add({.prompt_tokens = 2000, .output_tokens = 20}, now);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  REQUIRE(searching);
  replanner.reset();  // else this never ends
}

}  // namespace tessera::coordinator
