// Elections between coordinators, in virtual time, over a store in memory.
#include "coordinator/spare/election.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "coordinator/spare/etcd_store.h"
#include "coordinator/spare/kept_cluster.h"
#include "coordinator/spare/leadership.h"

namespace tessera::coordinator {
namespace {

using Catch::Matchers::Contains;
using Standing = Election::Standing;

constexpr char kKey[] = "/tessera/test/leader";

// Leases end by its own clock.
class FakeStore final : public LeaderStore {
 public:
  absl::StatusOr<Lease> Grant(double seconds) override {
    if (down) return Down();
    const std::string id = std::to_string(++revision_);
    leases_[id] = {now + seconds, seconds};
    return Lease{id, seconds};
  }
  absl::StatusOr<bool> Renew(const std::string& lease) override {
    if (down) return Down();
    Expire();
    const auto found = leases_.find(lease);
    if (found == leases_.end()) return false;
    found->second.ends = now + found->second.seconds;
    return true;
  }
  absl::Status Revoke(const std::string& lease) override {
    if (down) return Down();
    leases_.erase(lease);
    Expire();
    return absl::OkStatus();
  }
  absl::StatusOr<std::map<std::string, StoredValue>> Read(const std::string& prefix) override {
    if (down) return Down();
    Expire();
    std::map<std::string, StoredValue> found;
    for (const auto& [key, value] : values_) {
      if (key.starts_with(prefix)) found[key] = value;
    }
    return found;
  }
  absl::StatusOr<uint64_t> Create(const std::string& key, const std::string& value,
                                  const std::string& lease) override {
    if (down) return Down();
    Expire();
    if (values_.contains(key) || !leases_.contains(lease)) return uint64_t{0};
    values_[key] = {value, ++revision_, lease};
    if (loses_answers) return Down();
    return revision_;
  }
  absl::StatusOr<bool> WriteWhile(const std::string& guard, uint64_t created,
                                  const std::string& key,
                                  const std::optional<std::string>& value) override {
    if (down) return Down();
    Expire();
    const auto found = values_.find(guard);
    if (found == values_.end() || found->second.created != created) return false;
    ++writes;
    values_.erase(key);
    if (value.has_value()) values_[key] = {*value, ++revision_, ""};
    return true;
  }

  bool down = false, loses_answers = false;
  double now = 0;
  std::atomic<int> writes = 0;

 private:
  struct Held {
    double ends = 0, seconds = 0;
  };
  static absl::Status Down() { return absl::UnavailableError("the store is down"); }
  void Expire() {
    std::erase_if(leases_, [&](const auto& entry) { return entry.second.ends <= now; });
    std::erase_if(values_, [&](const auto& entry) {
      return !entry.second.lease.empty() && !leases_.contains(entry.second.lease);
    });
  }

  uint64_t revision_ = 0;
  std::map<std::string, Held> leases_;
  std::map<std::string, StoredValue> values_;
};

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
    for (; store.now < seconds; store.now += 0.2) {
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

TEST_CASE("what a leader keeps is the next one's, and no deposed one writes it") {
  auto owned = std::make_unique<FakeStore>();
  FakeStore& store = *owned;
  bool gone = false;
  LeadershipOptions options;
  options.prefix = "/tessera/test/";
  options.election = Named("a", &gone);
  options.step_seconds = 1e-3;
  options.now_seconds = [] { return 0.0; };
  // Before there is a leader.
  Lease lease = *store.Grant(5);
  const uint64_t before = *store.Create(kKey, "before", lease.id);
  CHECK(*store.WriteWhile(kKey, before, "/tessera/test/kept/plans", "p"));
  CHECK(*store.WriteWhile(kKey, before, "/tessera/test/kept/workers/w", "w"));
  CHECK_FALSE(*store.WriteWhile(kKey, before + 1, "/tessera/test/kept/plans", "q"));
  CHECK(store.Revoke(lease.id).ok());
  store.writes = 0;
  const auto eventually = [](const auto& done) {
    for (int i = 0; i < 10'000 && !done(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return done();
  };
  {
    Leadership leadership(std::move(options), std::move(owned));
    REQUIRE(eventually([&] { return leadership.standing() == Standing::kLeads; }));
    CHECK(leadership.kept() == Leadership::Values{{"plans", "p"}, {"workers/w", "w"}});
    leadership.Keep({{"plans", "p"}, {"workers/v", "v"}});
    REQUIRE(eventually([&] { return store.writes == 2; }));  // one new, one gone, one the same
    leadership.Resign();
    CHECK(store.Read(kKey)->empty());
    CHECK(store.Read("/tessera/test/kept/")->size() == 2);
    CHECK(store.Read("/tessera/test/kept/workers/")->begin()->second.value == "v");
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

TEST_CASE("URLs of etcd") {
  const auto place = ParseEtcdUrl("etcd://10.0.0.5,[::1]:2380/chat");
  REQUIRE(place.ok());
  CHECK(place->cluster == "chat");
  REQUIRE(place->members.size() == 2);
  CHECK((place->members[0].host == "10.0.0.5" && place->members[0].port == "2379"));
  CHECK((place->members[1].host == "::1" && place->members[1].port == "2380"));
  CHECK(ParseEtcdUrl("etcd://e")->cluster == "default");
  for (const char* bad : {"http://e", "etcd://", "etcd://e,", "etcd://e:port", "etcd://e/a/b",
                          "etcd://e/", "etcd://user@e"}) {
    CHECK_THAT(std::string(ParseEtcdUrl(bad).status().message()),
               Contains("etcd://HOST:PORT[,HOST:PORT][/CLUSTER] is expected"));
  }
}

}  // namespace tessera::coordinator
