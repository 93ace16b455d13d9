// Which links of a cluster are measured.
#include "coordinator/deployment/cluster_profile.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tessera::coordinator {

using Pairs = std::vector<std::pair<std::string, std::string>>;

TEST_CASE("one pair of workers stands for each pair of machines, and for each machine of several") {
  CHECK(PairsToProbe({"a/0", "a/1", "a/2", "b/0", "c/0", "c/1"}) ==
        Pairs{{"a/0", "a/1"}, {"a/0", "b/0"}, {"a/0", "c/0"}, {"b/0", "c/0"}, {"c/0", "c/1"}});
  CHECK(PairsToProbe({"a/0"}).empty());
  CHECK(PairsToProbe({}).empty());
  // Indices are numbers.
  CHECK(PairsToProbe({"a/10", "a/9", "a/11"}) == Pairs{{"a/9", "a/10"}});
  CHECK(PairsToProbe({"alone", "x/0"}) == Pairs{{"alone", "x/0"}});
}

TEST_CASE("a cluster without live workers is not measured, and a worker that is gone is named") {
  ClusterProfile profile("");
  const auto go_on = [] { return absl::OkStatus(); };
  std::map<std::string, WorkerRecord> workers;
  CHECK(absl::IsFailedPrecondition(profile.Measure(workers, go_on).status()));
  workers["a/0"].state = v1::WORKER_STATE_LOST;
  CHECK(absl::IsFailedPrecondition(profile.Measure(workers, go_on).status()));
  workers["a/0"].state = v1::WORKER_STATE_READY;
  workers["a/0"].registration.set_name("a/0");
  workers["a/0"].registration.set_address("127.0.0.1:1");  // no one listens
  const absl::Status gone = profile.Measure(workers, go_on).status();
  CHECK(absl::IsUnavailable(gone));
  CHECK(gone.message().find("worker a/0 could not be measured") != std::string_view::npos);
  const absl::Status busy = absl::FailedPreconditionError("busy");
  CHECK(profile.Measure(workers, [&] { return busy; }).status() == busy);
  profile.Cancel();
  CHECK(absl::IsCancelled(profile.Measure(workers, go_on).status()));
}

}  // namespace tessera::coordinator
