// Which links of a cluster are measured, and which workers at the same time.
#include "coordinator/deployment/cluster_profile.h"

#include <grpcpp/grpcpp.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "proto/worker.grpc.pb.h"

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

// Waits in each Profile until `together` of them are under way, if that takes no longer than 10 s.
class Meeting {
 public:
  explicit Meeting(int together) : together_(together) {}

  bool Wait() {
    std::unique_lock lock(mutex_);
    ++came_;
    changed_.notify_all();
    return changed_.wait_for(lock, std::chrono::seconds(10), [&] { return came_ >= together_; });
  }

 private:
  const int together_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int came_ = 0;
};

class ProfiledOnly final : public v1::Worker::Service {
 public:
  explicit ProfiledOnly(Meeting* meeting) : meeting_(meeting) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~ProfiledOnly() override { server_->Shutdown(); }

  grpc::Status Profile(grpc::ServerContext*, const v1::ProfileRequest* request,
                       v1::ProfileReply* reply) override {
    window_seconds = request->window_seconds();
    if (!meeting_->Wait()) return {grpc::StatusCode::ABORTED, "nobody else is measured"};
    reply->set_memory_read_bytes_per_second(port_);
    return grpc::Status::OK;
  }
  grpc::Status ProbeLink(grpc::ServerContext*, const v1::ProbeLinkRequest*,
                         v1::ProbeLinkReply*) override {
    return grpc::Status::OK;
  }

  WorkerRecord Record(const std::string& name) const {
    WorkerRecord record;
    record.state = v1::WORKER_STATE_READY;
    record.registration.set_name(name);
    record.registration.set_address("127.0.0.1:" + std::to_string(port_));
    return record;
  }
  int port() const { return port_; }

  double window_seconds = -1;

 private:
  Meeting* const meeting_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST_CASE("workers of one machine are measured at the same time, others on their own") {
  CHECK(WorkersByMachine({"b/0", "a/10", "a/9"}) ==
        std::vector<std::vector<std::string>>{{"a/9", "a/10"}, {"b/0"}});
  Meeting two(2), one(1);
  ProfiledOnly first(&two), second(&two), alone(&one);
  const std::map<std::string, WorkerRecord> workers = {
      {"a/0", first.Record("a/0")}, {"a/1", second.Record("a/1")}, {"b/0", alone.Record("b/0")}};
  const auto measured = ClusterProfile("").Measure(workers, [] { return absl::OkStatus(); });
  REQUIRE(measured.status().message() == "");
  REQUIRE(measured->workers_size() == 3);
  const ProfiledOnly* of[] = {&first, &second, &alone};
  for (int i = 0; i < 3; ++i)
    CHECK(measured->workers(i).rates().memory_read_bytes_per_second() == of[i]->port());
  CHECK(first.window_seconds > 0);
  CHECK(first.window_seconds == second.window_seconds);
  CHECK(alone.window_seconds == 0);
  CHECK(measured->links_size() == 2);
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
