// A coordinator among several, over a member of etcd that the test plays.
#include "coordinator/high_availability.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "scheduler/replicate.h"
#include "tests/coordinator/spare/fake_etcd.h"
#include "tests/coordinator/staged_plan.h"
#include "tests/logged_lines.h"
#include "tests/temporary_folder.h"

namespace tessera::coordinator {
namespace {

using Catch::Matchers::Contains;

constexpr char kKey[] = "/tessera/test/leader";

bool Eventually(const std::function<bool()>& done) {
  for (int i = 0; i < 20'000 && !done(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return done();
}

CoordinatorOptions At(const FakeEtcd& etcd) {
  CoordinatorOptions options;
  options.port = 0;
  options.ha = "etcd://" + etcd.address() + "/test";
  options.ha_lease_seconds = 60;  // so that its members get the longest patience
  return options;
}

std::unique_ptr<HighAvailability> Lead(const CoordinatorOptions& options) {
  auto leads = HighAvailability::Lead(
      options, nullptr, [] { return 0.0; }, [] { return false; });
  REQUIRE(leads.status().message() == "");
  REQUIRE(*leads != nullptr);
  return *std::move(leads);
}

PlanSet SomePlan() {
  PlanSet plans;
  plans.names_devices = true;
  const std::vector<scheduler::DeviceOffer> offers = {{"kept/0", 1 << 30}};
  plans.plans.push_back(scheduler::OneReplicaPerDevice(SmallModel(), offers));
  return plans;
}

// Has a plan for no workers, which nobody keeps.
class NoWorkers final : public PlanSource {
 public:
  std::optional<NextPlan> Next(const PlanView&) override { return NextPlan{}; }
};

// Whether the coordinator with these flags begins with the plan that was kept.
bool TakesUp(const CoordinatorOptions& options) {
  const auto leads = Lead(options);
  const std::vector<v1::Model> models = {SmallModel()};
  const auto source = leads->KeptFirst(std::make_unique<NoWorkers>(), models);
  const auto next = source->Next({PlanSet(), {}, 0});
  REQUIRE(next.has_value());
  return !next->plans.plans.empty() && DevicesOf(next->plans).contains("kept/0");
}

}  // namespace

TEST_CASE("the plan that was kept is taken up by who has the same flags of plans, and no other") {
  tests::TemporaryFolder folder;
  folder.Write("cluster.yaml", "machines: []\n");
  FakeEtcd etcd;
  CoordinatorOptions options = At(etcd);
  options.cluster_file = (folder.path() / "cluster.yaml").string();
  {
    const auto leads = Lead(options);
    leads->Keep(SomePlan(), {});
    REQUIRE(Eventually([&] { return etcd.store.Read("/tessera/test/kept/").value().size() == 2; }));
  }
  CHECK(TakesUp(options));
  const std::string left = "say other things of plans than those of the leader before";
  CoordinatorOptions other = options;
  SECTION("--prefer") { other.prefer = "latency"; }
  SECTION("--split") { other.split = true; }
  SECTION("--no-split") { other.split = false; }
  SECTION("what --cluster holds") { folder.Write("cluster.yaml", "machines: [] # of today\n"); }
  SECTION("--workload") {
    folder.Write("workload.yaml", "lengths: {}\n");
    other.workload_file = (folder.path() / "workload.yaml").string();
  }
  const tests::LoggedLines log("spare");
  CHECK_FALSE(TakesUp(other));
  CHECK(log.Count(left) == 1);
}

TEST_CASE("one that loses its place before it has read what was kept ends by name") {
  FakeEtcd etcd;
  etcd.store.keeps_nothing = true;  // it is elected, and does not lead yet
  std::atomic<double> now = 0;
  std::atomic<bool> ended = false;
  absl::Status why;
  std::thread waiting([&] {
    why = HighAvailability::Lead(
              At(etcd), nullptr, [&] { return now.load(); }, [] { return false; })
              .status();
    ended = true;
  });
  CHECK(Eventually([&] { return !etcd.store.Read(kKey).value().empty(); }));
  CHECK_FALSE(ended);
  CHECK(etcd.store.PassOn(kKey, R"({"http":"http://b:8000","grpc":""})") > 0);
  now = 30;  // half of its lease: it renews
  waiting.join();
  CHECK(absl::IsUnavailable(why));
  CHECK_THAT(std::string(why.message()), Contains("start this one again, as its spare"));
}

TEST_CASE("a spare ends when it is asked to, also while etcd does not answer") {
  FakeEtcd etcd;
  etcd.store.PassOn(kKey, R"({"http":"http://b:8000","grpc":""})");
  std::atomic<bool> stop = false;
  const tests::LoggedLines log("spare");
  absl::Status why;
  std::thread waiting([&] {
    why = HighAvailability::Lead(
              At(etcd), nullptr, [] { return 0.0; }, [&] { return stop.load(); })
              .status();
  });
  CHECK(Eventually([&] { return log.Count("is a spare: http://b:8000 leads") == 1; }));
  etcd.silent = true;
  CHECK(Eventually([&] { return log.Count("this coordinator stays a spare meanwhile") == 1; }));
  stop = true;
  waiting.join();
  CHECK(absl::IsCancelled(why));
}

}  // namespace tessera::coordinator
