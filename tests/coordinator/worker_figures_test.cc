// What coordinators make of workers' counters: GetCluster's figures and the series of /metrics.
#include "coordinator/deployment/worker_figures.h"

#include <prometheus/text_serializer.h>

#include <catch2/catch.hpp>

#include "coordinator/deployment/busy_window.h"
#include "coordinator/deployment/worker_metrics.h"

namespace tessera::coordinator {
namespace {

using Catch::Matchers::Contains;

v1::WorkerCounters Counted(double uptime_seconds, double busy_seconds) {
  v1::WorkerCounters counters;
  counters.set_uptime_seconds(uptime_seconds);
  counters.set_busy_seconds(busy_seconds);
  return counters;
}

v1::LinkCounters* AddLinks(v1::LinkKind kind, const char* transport, uint64_t peer,
                           v1::WorkerCounters* counters) {
  v1::LinkCounters* links = counters->add_links();
  links->set_kind(kind);
  links->set_transport(transport);
  links->set_peer_incarnation(peer);
  return links;
}

v1::GetClusterReply ClusterOf(const std::map<std::string, WorkerRecord>& workers) {
  v1::GetClusterReply reply;
  reply.set_model("demo");
  for (const auto& [name, record] : workers) {
    v1::WorkerStatus& worker = *reply.add_workers();
    worker.set_name(name);
    worker.set_replica(record.replica);
  }
  return reply;
}

// box/0 and far/0, which are linked, and far/1 outside the plan.
struct Example {
  std::map<std::string, WorkerRecord> workers;
  v1::DeploymentPlan plan;

  Example() {
    uint64_t incarnation = 1;
    for (const char* name : {"box/0", "far/0", "far/1"})
      workers[name].registration.set_incarnation(incarnation++);
    v1::Replica& replica = *plan.add_replicas();
    replica.set_name("r0");
    for (const auto& [device, busy] : {std::pair("box/0", 1.0), std::pair("far/0", 0.5)}) {
      workers[device].replica = "r0";
      v1::Stage& stage = *replica.add_stages();
      stage.add_workers()->set_device(device);
      stage.set_busy_share(busy);
    }
    v1::LinkLoad& load = *plan.add_links();
    load.set_from("box");
    load.set_to("far");
    load.set_capacity_bytes_per_second(5e6);
    v1::WorkerCounters& counters = workers["far/0"].counters;
    counters = Counted(4, 1.5);
    counters.set_formation_aborts(2);
    counters.set_links_refused(3);
    v1::LinkCounters* bulk = AddLinks(v1::LINK_KIND_BULK, "tcp", 1, &counters);
    bulk->set_bytes_sent(70);
    bulk->set_bytes_received(9000);
    bulk->set_timed_bytes(8000);
    bulk->set_timed_seconds(0.002);
    AddLinks(v1::LINK_KIND_BULK, "tcp", 0, &counters)->set_bytes_sent(30);
    AddLinks(v1::LINK_KIND_CONTROL, "unix", 99, &counters)->set_bytes_received(5);
  }
};

}  // namespace

TEST_CASE("the share of time busy is that of the last ten seconds") {
  BusyWindow window;
  CHECK(!window.Share().has_value());
  window.Add(Counted(100, 50));
  CHECK(!window.Share().has_value());
  // Busy throughout, then a quarter of the time.
  for (int second = 1; second <= 20; ++second) window.Add(Counted(100 + second, 50 + second));
  CHECK(window.Share().value() == 1);
  for (int second = 1; second <= 10; ++second)
    window.Add(Counted(120 + second, 70 + 0.25 * second));
  CHECK(window.Share().value() == 0.25);
  // Many heartbeats do not make the window longer or the list endless.
  for (int tick = 1; tick <= 2000; ++tick) window.Add(Counted(130 + 0.01 * tick, 72.5));
  CHECK(window.Share().value() == 0);
  // A step that began long before counts at its end.
  window.Add(Counted(151, 200));
  CHECK(window.Share().value() == 1);
  // Another process: it has worked since its start.
  window.Add(Counted(1, 0.25));
  CHECK(window.Share().value() == 0.25);
  window.Add(Counted(2, 1));
  CHECK(window.Share().value() == 0.5);
}

TEST_CASE("measured figures are beside planned ones, and peers have names") {
  Example example;
  example.workers["far/0"].busy.Add(Counted(102, 1));
  example.workers["far/0"].busy.Add(Counted(104, 1.5));
  v1::GetClusterReply reply = ClusterOf(example.workers);
  ShowFigures(example.workers, example.plan, &reply);
  const v1::WorkerStatus& far = reply.workers(1);
  CHECK(far.busy_share() == 0.25);
  CHECK(far.planned_busy_share() == 0.5);
  CHECK(far.counters().formation_aborts() == 2);
  REQUIRE(far.links_size() == 2);  // closed ones are no links
  CHECK(far.links(0).peer() == "box/0");
  CHECK(far.links(0).bytes_sent() == 70);
  CHECK(far.links(0).bytes_received() == 9000);
  CHECK(far.links(0).received_bytes_per_second() == Approx(4e6));
  CHECK(far.links(0).planned_bytes_per_second() == 5e6);
  CHECK(far.links(1).peer().empty());
  CHECK(far.links(1).received_bytes_per_second() == 0);
  CHECK(reply.workers(0).planned_busy_share() == 1);
  CHECK(!reply.workers(0).has_busy_share());
  CHECK(reply.workers(2).planned_busy_share() == 0);
}

TEST_CASE("every worker has every series, with its place") {
  Example example;
  v1::GetClusterReply reply = ClusterOf(example.workers);
  reply.mutable_workers(1)->set_stage(1);
  ShowFigures(example.workers, example.plan, &reply);
  const std::string text = prometheus::TextSerializer().Serialize(WorkerFamilies(reply));
  const std::string far = R"({model_name="demo",worker="far/0",replica="r0",stage="1",rank="0")";
  for (const std::string& line : {
           "tessera_worker_busy_seconds_total" + far + "} 1.5\n",
           "tessera_formation_aborts_total" + far + "} 2\n",
           "tessera_link_refused_total" + far + "} 3\n",
           "tessera_link_bytes_total" + far +
               ",direction=\"sent\",transport=\"tcp\",kind=\"bulk\"} 100\n",
           "tessera_link_bytes_total" + far +
               ",direction=\"received\",transport=\"unix\",kind=\"control\"} 5\n",
           "tessera_link_timed_bytes_total" + far + ",transport=\"tcp\"} 8000\n",
           "tessera_link_timed_seconds_total" + far + ",transport=\"tcp\"} 0.002\n",
           std::string("tessera_worker_busy_seconds_total{model_name=\"demo\",worker=\"far/1\","
                       "replica=\"\",stage=\"\",rank=\"\"} 0\n"),
       }) {
    CHECK_THAT(text, Contains(line));
  }
  const auto count = [&](const std::string& part) {
    size_t found = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
      ++found;
    return found;
  };
  CHECK(count("worker=\"far/1\"") == count("worker=\"far/0\""));
  CHECK(count("worker=\"far/1\"") == 3 + 2 * (2 * 5 + 2) + 4 * 2);
}

TEST_CASE("every pair of replicas has its series, and its transport once there is one") {
  v1::GetClusterReply reply;
  reply.set_model("demo");
  v1::HandOverStatus& pair = *reply.add_hand_overs();
  pair.set_prefill_replica("p");
  pair.set_decode_replica("d");
  const auto text = [&] { return prometheus::TextSerializer().Serialize(HandOverFamilies(reply)); };
  const std::string labels = R"({model_name="demo",prefill="p",decode="d")";
  CHECK_THAT(text(), Contains("tessera_kv_transfers_total" + labels + "} 0\n"));
  CHECK_THAT(text(), Contains("tessera_kv_transfer_back_off_seconds" + labels + "} 0\n"));
  CHECK_THAT(text(), !Contains("transport=\""));
  pair.set_prompts(7);
  pair.set_bytes(3000);
  pair.set_seconds(2);
  pair.set_transport("tcp, staged");
  pair.set_failures(4);
  pair.set_back_off_seconds(8);
  for (const std::string& line :
       {"tessera_kv_transfers_total" + labels + "} 7\n",
        "tessera_kv_transfer_failures_total" + labels + "} 4\n",
        "tessera_kv_transfer_bytes_total" + labels + "} 3000\n",
        "tessera_kv_transfer_seconds_total" + labels + "} 2\n",
        "tessera_kv_transfer_back_off_seconds" + labels + "} 8\n",
        "tessera_kv_transfer_transport_info" + labels + ",transport=\"tcp, staged\"} 1\n"}) {
    CHECK_THAT(text(), Contains(line));
  }
}

}  // namespace tessera::coordinator
