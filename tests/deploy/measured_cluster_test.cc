// tessera profile: the description that it writes.
#include "deploy/measured_cluster.h"

#include <catch2/catch.hpp>
#include <string>

#include "proto/document.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/input/cluster_graph.h"
#include "scheduler/input/runtime_reserve.h"

namespace tessera::deploy {
namespace {

using Catch::Contains;

void AddWorker(const std::string& name, double gigabytes_per_second, double gigaflops,
               v1::ProfileClusterReply* measured) {
  v1::ProfiledWorker& worker = *measured->add_workers();
  worker.set_name(name);
  worker.mutable_device()->set_kind("cpu");
  worker.mutable_device()->set_memory_bytes((int64_t{3} << 30) + 1);
  worker.mutable_rates()->set_memory_read_bytes_per_second(1e9 * gigabytes_per_second);
  worker.mutable_rates()->set_float32_flops_per_second(1e9 * gigaflops / 2);
  worker.mutable_rates()->set_bfloat16_flops_per_second(1e9 * gigaflops);
  worker.mutable_rates()->set_int8_flops_per_second(3e9 * gigaflops);
  worker.mutable_rates()->set_kv_codec_bytes_per_second(1.5e9);
  worker.mutable_rates()->set_device("CPU, 4 cores");
  worker.mutable_rates()->set_kernel_path("avx512");
}

void AddLink(const std::string& from, const std::string& to, double sent, double received,
             v1::ProfileClusterReply* measured) {
  v1::ProfiledLink& link = *measured->add_links();
  link.set_from(from);
  link.set_to(to);
  link.mutable_measured()->set_transport("tcp");
  link.mutable_measured()->set_latency_seconds(80e-6);
  link.mutable_measured()->set_sent_bytes_per_second(sent);
  link.mutable_measured()->set_received_bytes_per_second(received);
}

// Two machines, one of them with two workers.
v1::ProfileClusterReply Measured() {
  v1::ProfileClusterReply measured;
  AddWorker("big/1", 20.5, 12'345.6, &measured);
  AddWorker("big/0", 10.25, 200, &measured);
  AddWorker("true/0", 0.75, 0.0625, &measured);
  AddLink("big/0", "big/1", 3e9, 2e9, &measured);
  AddLink("big/0", "true/0", 125e6, 110e6, &measured);
  return measured;
}

std::string Described(const v1::ProfileClusterReply& measured) {
  const auto text = DescribeMeasured(measured, "2026-11-25", "2026-11-25 04:10 UTC");
  REQUIRE(text.status().message() == "");
  return *text;
}

std::string Refusal(const v1::ProfileClusterReply& measured) {
  const auto text = DescribeMeasured(measured, "2026-11-25", "2026-11-25 04:10 UTC");
  REQUIRE(absl::IsInvalidArgument(text.status()));
  return std::string(text.status().message());
}

}  // namespace

TEST_CASE("what was measured is what the planner reads, device by device and link by link") {
  const std::string text = Described(Measured());
  INFO(text);
  v1::Cluster cluster;
  REQUIRE(ReadDocument(text, "f.yaml", &cluster).message() == "");
  CHECK(scheduler::RuntimeReserveBytes(cluster) == 0);
  const auto graph = scheduler::MakeClusterGraph(cluster, *scheduler::BuiltInDevices(), "f.yaml");
  REQUIRE(graph.status().message() == "");
  REQUIRE(graph->devices() == 3);
  const double bandwidths[] = {10.25e9, 20.5e9, 0.75e9}, flops[] = {200e9, 12'346e9, 0.0625e9};
  for (size_t i = 0; i < 3; ++i) {
    const scheduler::DeviceSpec& spec = *graph->pools()[i].spec;
    CHECK(spec.memory_bytes == 3.0 * (1 << 30));
    CHECK(spec.memory_bytes_per_second == Approx(bandwidths[i]));
    CHECK(spec.memory_efficiency == 1);     // of what was measured
    CHECK(spec.compute_efficiency == 0.9);  // of linear ops' rate, not of a data sheet's peak
    CHECK_FALSE(spec.estimated);
    CHECK(spec.flops_per_second == Approx(flops[i]));
  }
  REQUIRE(cluster.machines_size() == 2);
  CHECK(cluster.machines(0).name() == "big");
  CHECK(cluster.machines(1).name() == "true");
  // The slower of its two directions.
  CHECK(cluster.machines(0).inside().bandwidth_bytes_per_second() == Approx(2e9));
  CHECK(cluster.machines(0).devices(0).profile().measured_on() == "2026-11-25");
  CHECK(cluster.machines(0).devices(0).profile().kv_codec_bytes_per_second() == 1.5e9);
  REQUIRE(cluster.links_size() == 2);
  const double between[] = {125e6, 110e6};
  for (int i = 0; i < 2; ++i) {
    CHECK(cluster.links(i).from() == (i == 0 ? "big" : "true"));
    CHECK(cluster.links(i).to() == (i == 0 ? "true" : "big"));
    CHECK(cluster.links(i).one_way());
    CHECK(cluster.links(i).link().bandwidth_bytes_per_second() == Approx(between[i]));
    CHECK(cluster.links(i).link().latency_seconds() == Approx(80e-6));
  }
}

TEST_CASE("products are what the planner reads, of alike devices the slowest") {
  v1::ProfileClusterReply measured;
  AddWorker("a/0", 10, 100, &measured);
  AddWorker("a/1", 10, 100, &measured);
  const auto add = [&](int worker, const char* weights, int rows, double gigabytes) {
    v1::ProductRate& rate = *measured.mutable_workers(worker)->mutable_rates()->add_products();
    rate.set_weights(weights);
    rate.set_rows(rows);
    rate.set_read_bytes_per_second(1e9 * gigabytes);
  };
  add(0, "int4", 1, 8);
  add(0, "int4", 512, 0.25);
  add(1, "int4", 512, 0.125);
  add(1, "int4", 1, 9);
  AddLink("a/0", "a/1", 3e9, 2e9, &measured);
  const std::string text = Described(measured);
  INFO(text);
  v1::Cluster cluster;
  REQUIRE(ReadDocument(text, "f.yaml", &cluster).message() == "");
  const auto graph = scheduler::MakeClusterGraph(cluster, *scheduler::BuiltInDevices(), "f.yaml");
  REQUIRE(graph.status().message() == "");
  REQUIRE(graph->pools().size() == 1);
  const auto& points = graph->pools()[0].spec->products_of(scheduler::WeightType::kInt4);
  REQUIRE(points.size() == 2);
  CHECK(points[0].seconds_per_byte == Approx(1 / 8e9));
  CHECK(points[1].rows == 512);
  CHECK(points[1].seconds_per_byte == Approx(1 / 8e9 + (1 / 0.125e9 - 1 / 8e9) / 0.9));
}

TEST_CASE("the file says when and how it was measured, and every data type's rate") {
  const std::string text = Described(Measured());
  CHECK_THAT(text, Contains("measured by `tessera profile` at 2026-11-25 04:10 UTC") &&
                       Contains("frames of up to 4 MiB") &&
                       Contains("float32 100 GFLOPS, bfloat16 200 GFLOPS, int8 600 GFLOPS") &&
                       Contains("CPU, 4 cores, kernels avx512"));
}

TEST_CASE("alike devices of one machine are one kind, so that a stage may span them") {
  v1::ProfileClusterReply measured;
  AddWorker("a/0", 10, 100, &measured);
  AddWorker("a/1", 9.5, 98, &measured);
  AddWorker("a/2", 7.5, 98, &measured);  // slower memory
  AddWorker("a/3", 10, 100, &measured);  // like the first, but not beside it
  AddWorker("b/0", 10, 100, &measured);  // another machine
  measured.mutable_workers(1)->mutable_device()->set_memory_bytes(int64_t{3} << 30);
  AddLink("a/0", "a/1", 3e9, 2e9, &measured);
  AddLink("a/0", "b/0", 125e6, 110e6, &measured);
  const std::string text = Described(measured);
  INFO(text);
  v1::Cluster cluster;
  REQUIRE(ReadDocument(text, "f.yaml", &cluster).message() == "");
  REQUIRE(cluster.machines(0).devices_size() == 3);
  const v1::DeviceGroup& both = cluster.machines(0).devices(0);
  CHECK(both.kind() == "cpu-a-0");
  CHECK(both.count() == 2);
  CHECK(both.profile().memory_read_bytes_per_second() == Approx(9.5e9));
  CHECK(cluster.kinds(0).dense_flops_per_second() == Approx(98e9));
  CHECK(cluster.kinds(0).memory_bytes() == int64_t{3} << 30);
  CHECK(cluster.machines(0).devices(1).kind() == "cpu-a-2");
  CHECK(cluster.machines(0).devices(2).kind() == "cpu-a-3");
  CHECK(cluster.machines(1).devices(0).kind() == "cpu-b-0");
  CHECK(scheduler::MakeClusterGraph(cluster, *scheduler::BuiltInDevices(), "f.yaml")->devices() ==
        5);
}

TEST_CASE("one worker alone has neither links nor an inside") {
  v1::ProfileClusterReply measured;
  AddWorker("a/0", 10, 100, &measured);
  v1::Cluster cluster;
  REQUIRE(ReadDocument(Described(measured), "f.yaml", &cluster).message() == "");
  CHECK(cluster.links().empty());
  CHECK_FALSE(cluster.machines(0).has_inside());
}

TEST_CASE(
    "workers that a description cannot name are refused by name, before anything is measured") {
  CHECK(CheckCanDescribe({"a/1", "a/0", "b/0"}).message() == "");
  CHECK_THAT(std::string(CheckCanDescribe({"a/0", "a/2"}).message()),
             Contains("worker a/1 is missing") && Contains("start that worker"));
  for (const std::string name : {"alone", "a/x", "/0", "a/-1"}) {
    CHECK_THAT(std::string(CheckCanDescribe({name}).message()),
               Contains("worker " + name + " is not named MACHINE/INDEX") && Contains("--name"));
  }
}

TEST_CASE("a rate that could not be measured is refused by worker or link") {
  v1::ProfileClusterReply measured = Measured();
  measured.mutable_workers(1)->mutable_rates()->set_bfloat16_flops_per_second(0);
  CHECK_THAT(Refusal(measured), Contains("bfloat16 rate of worker big/0"));
  measured = Measured();
  measured.mutable_links(1)->mutable_measured()->set_received_bytes_per_second(0);
  CHECK_THAT(Refusal(measured), Contains("the link from big/0 to true/0"));
}

}  // namespace tessera::deploy
