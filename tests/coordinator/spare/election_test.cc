// Elections between coordinators, in virtual time, over a store in memory.
#include "coordinator/spare/election.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "coordinator/spare/kept_cluster.h"
#include "tests/coordinator/spare/fake_store.h"

namespace tessera::coordinator {
namespace {

using Standing = Election::Standing;

constexpr char kKey[] = "/tessera/test/leader";

ElectionOptions Named(const std::string& name, const bool* gone) {
  return {.key = kKey, .value = name, .lease_seconds = 5, .is_gone = [gone](const std::string&) {
            return *gone;
          }};
}

// Two coordinators of one store.
struct Two {
  FakeStore store;
  bool gone = false;  // whoever leads is known to be gone
  Election a{Named("a", &gone), store}, b{Named("b", &gone), store};

  // Both step five times a second, or one alone.
  void Until(double seconds, bool a_runs = true) {
    for (; store.now < seconds; store.now = store.now + 0.2) {
      if (a_runs) a.Step(store.now);
      b.Step(store.now);
    }
  }
};

}  // namespace

TEST_CASE("one of two leads, and the other one knows it") {
  Two two;
  two.Until(60);
  CHECK(two.a.Step(60) == Standing::kLeads);
  CHECK(two.b.Step(60) == Standing::kSpare);
  CHECK(two.b.leader() == "a");
  CHECK(two.b.term() == 0);
  CHECK(two.a.term() > 0);
}

TEST_CASE("a spare leads when the lease of a silent leader has ended, in a higher term") {
  Two two;
  two.Until(10);
  two.Until(13, /*a_runs=*/false);
  CHECK(two.b.Step(13) == Standing::kSpare);
  two.Until(15.5, /*a_runs=*/false);
  CHECK(two.b.Step(15.5) == Standing::kLeads);
  CHECK(two.b.term() > two.a.term());
  // The one before hears of it once it runs again.
  CHECK(two.a.Step(16) == Standing::kDeposed);
  CHECK(two.a.leader() == "b");
  CHECK(two.a.Step(100) == Standing::kDeposed);
}

TEST_CASE("a spare ends the lease of a leader that is known to be gone") {
  Two two;
  two.Until(10);
  two.gone = true;
  CHECK(two.b.Step(10) == Standing::kSpare);
  two.gone = false;
  CHECK(two.b.Step(10.2) == Standing::kSpare);
  two.gone = true;
  CHECK(two.b.Step(10.4) == Standing::kSpare);
  CHECK(two.b.Step(10.6) == Standing::kLeads);
}

TEST_CASE("a leader that does not listen yet is not gone") {
  Two two;
  two.gone = true;
  two.Until(10);
  CHECK(two.a.Step(10) == Standing::kLeads);
  CHECK(two.b.Step(10) == Standing::kSpare);
}

TEST_CASE("one whose key was made although the answer was lost leads") {
  Two two;
  two.store.loses_answers = true;
  two.a.Step(0);
  two.store.loses_answers = false;
  CHECK(two.b.Step(0.2) == Standing::kSpare);
  CHECK(two.a.Step(0.4) == Standing::kLeads);
  CHECK(two.a.term() > 0);
}

TEST_CASE("a leader that resigns is followed at once") {
  Two two;
  two.Until(10);
  two.a.Resign();
  CHECK(two.b.Step(10) == Standing::kLeads);
  CHECK(two.a.Step(10) == Standing::kDeposed);
}

TEST_CASE("without the store the leader leads on, and nobody else does") {
  Two two;
  two.Until(10);
  const uint64_t term = two.a.term();
  two.store.down = true;
  two.Until(100);
  CHECK(two.a.Step(100) == Standing::kLeads);
  CHECK(two.b.Step(100) == Standing::kSpare);
  CHECK(two.a.trouble() == "the store is down");
  // Its lease has ended meanwhile: it leads again, in a higher term, unless it is late.
  two.store.down = false;
  CHECK(two.a.Step(100.2) == Standing::kLeads);
  CHECK(two.a.term() > term);
  CHECK(two.b.Step(100.2) == Standing::kSpare);
  CHECK(two.a.trouble().empty());
}

TEST_CASE("terms rise although the store has lost what it had") {
  Two two;
  for (int i = 0; i < 100; ++i) (void)two.store.Grant(1);  // revisions of a long life
  two.Until(10);
  const uint64_t term = two.a.term();
  REQUIRE(term > 100);
  two.store.Forget();
  two.Until(20);
  CHECK(two.a.Step(20) == Standing::kLeads);
  CHECK(two.a.term() > term);
  CHECK(two.a.created() < 100);  // as it is in the store, or none of its writes would be taken
  CHECK(two.b.leader() == "a");
  CHECK(*two.store.WriteWhile(kKey, two.a.created(), "/tessera/test/kept/x", "y"));
  // The next one hears from the workers which term they obey, and leads in a higher one.
  two.a.Resign();
  CHECK(two.b.Step(20.2) == Standing::kLeads);
  CHECK(two.b.term() < two.a.term());
  two.b.HearTerm(two.a.term());
  CHECK(two.b.Step(20.4) == Standing::kLeads);
  CHECK(two.b.term() > two.a.term());
  const uint64_t risen = two.b.term();
  two.b.HearTerm(two.a.term());
  CHECK(two.b.Step(20.6) == Standing::kLeads);
  CHECK(two.b.term() == risen);
}

TEST_CASE(
    "a spare leads a lease after the store has lost what it had, where no leader comes back") {
  Two two;
  for (int i = 0; i < 100; ++i) (void)two.store.Grant(1);
  two.Until(10);
  two.store.Forget();
  two.Until(14.5, /*a_runs=*/false);
  CHECK(two.b.Step(14.5) == Standing::kSpare);
  two.Until(15.5, /*a_runs=*/false);
  CHECK(two.b.Step(15.5) == Standing::kLeads);
  CHECK(two.a.Step(15.6) == Standing::kDeposed);
}

TEST_CASE("a leader that workers have left for another is deposed, also without the store") {
  Two two;
  two.Until(10);
  SECTION("the store says who leads") {
    const uint64_t later = two.store.PassOn(kKey, "c");
    two.a.HearTerm(later);
    CHECK(two.a.Step(10.2) == Standing::kDeposed);
    CHECK(two.a.leader() == "c");
  }
  SECTION("the store is silent for a lease") {
    two.store.down = true;
    two.a.HearTerm(two.a.term() + 1);
    CHECK(two.a.Step(10.2) == Standing::kLeads);
    CHECK(two.a.Step(15) == Standing::kLeads);
    CHECK(two.a.Step(15.3) == Standing::kDeposed);
    CHECK(two.a.leader().empty());
  }
}

TEST_CASE("kept values are read as they were, and what cannot be read is left out") {
  PlanSet plans;
  std::map<std::string, WorkerRecord> workers;
  workers["w/0"].registration.set_name("w/0");
  workers["w/0"].registration.set_plan_epoch(3);
  workers["w/1"].registration.set_name("w/1");
  workers["w/1"].state = v1::WORKER_STATE_READY;
  workers["w/1"].plan_epoch = 7;
  workers["w/2"].state = v1::WORKER_STATE_LOST;
  workers["w/3"].registration.set_name("w/3");
  workers["w/3"].state = v1::WORKER_STATE_LOST;
  // Where each worker is a replica its plan is made again.
  CHECK(ReadKeptValues(KeptValues(plans, "flags", workers)).plans.empty());
  plans.names_devices = true;
  v1::DeploymentPlan& plan = plans.plans.emplace_back();
  plan.mutable_model()->set_name("m");
  plan.add_replicas()->add_stages()->add_workers()->set_device("w/3");
  std::map<std::string, std::string> values = KeptValues(plans, "flags", workers);
  values["workers/w/9"] = "\xff\xff";
  values["of a later build"] = "?";
  const KeptCluster kept = ReadKeptValues(values);
  REQUIRE(kept.plans.size() == 1);
  CHECK(kept.plans[0].model().name() == "m");
  CHECK(kept.flags == "flags");
  REQUIRE(kept.workers.size() == 3);
  CHECK(kept.workers[2].name() == "w/3");  // lost, but the plan waits for it
  CHECK(kept.workers[0].plan_epoch() == 3);
  CHECK(kept.workers[1].plan_epoch() == 7);
}

}  // namespace tessera::coordinator
