#include "scheduler/input/cluster_graph.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <string>

#include "proto/document.h"
#include "proto/layers/layers.h"
#include "scheduler/cost/model_shape.h"
#include "scheduler/input/catalogue.h"

namespace tessera::scheduler {
namespace {

absl::StatusOr<ClusterGraph> Read(const std::string& text) {
  v1::Cluster cluster;
  if (absl::Status s = ReadDocument(text, "c.yaml", &cluster); !s.ok()) return s;
  return MakeClusterGraph(cluster, *BuiltInDevices(), "c.yaml");
}

std::string ErrorOf(const std::string& text) { return std::string(Read(text).status().message()); }

TEST_CASE("the catalogues are sound: every figure of a kind is there, with its source") {
  const auto devices = BuiltInDevices();
  REQUIRE(devices.ok());
  CHECK(devices->kinds_size() >= 20);
  for (const v1::DeviceKind& kind : devices->kinds()) {
    INFO(kind.name());
    CHECK(kind.memory_bytes() > 0);
    CHECK(kind.dense_flops_per_second() < 3e15);
    CHECK(kind.memory_bandwidth_bytes_per_second() > 1e11);
    const bool alone = kind.name() == "GB10" || kind.planned_only();  // one to a machine
    CHECK((kind.peer_link().bandwidth_bytes_per_second() > 0) == !alone);
    CHECK_FALSE(kind.source().empty());
    CHECK_FALSE(kind.source_date().empty());
  }
  CHECK(FindKind(*devices, "rtx a6000")->name() == "A6000");
  CHECK(FindKind(*devices, "no such card") == nullptr);
}

TEST_CASE("every built-in model has the size in its name, or that of its publisher") {
  // In billions, of names that have none or another.
  const std::map<std::string, double> published = {
      {"Mixtral-8x7B", 46.7},  {"Llama-4-Scout", 109},  {"Llama-4-Maverick", 400},
      {"GLM-4.5-Air", 106},    {"GLM-4.5", 355},        {"GLM-4.6", 355},
      {"GLM-4.7", 355},        {"DeepSeek-V3", 671},    {"Kimi-K2", 1026},
      {"MiniMax-M2.5", 230},   {"Mistral-Small-3", 24}, {"Phi-4", 14.7},
      {"Granite-3.3-2B", 2.53}};
  const auto models = BuiltInModels();
  REQUIRE(models.ok());
  for (const v1::Model& model : models->models()) {
    INFO(model.name());
    const auto shape = MakeModelShape(model);
    REQUIRE(shape.ok());
    const size_t b = model.name().find('B');  // of Qwen3-30B-A3B the first: all, not the active
    const size_t dash = model.name().rfind('-', b);
    const auto known = published.find(model.name());
    const double billions =
        known != published.end() ? known->second : std::stod(model.name().substr(dash + 1));
    const double tolerance = billions < 2 ? 0.2 : 0.1;  // names round
    CHECK(TotalParameters(*shape) / 1e9 == Approx(billions).epsilon(tolerance));
  }
  CHECK(LayerCount(*BuiltInModel("llama-2-70b")) == 80);
  CHECK_THAT(std::string(BuiltInModel("x").status().message()), Catch::Contains("Mixtral-8x7B"));
}

TEST_CASE("devices of a kind without a peer_link need a link inside their machine") {
  const std::string text = R"(
kinds: [{name: my, memory: 24 GiB, dense_flops_per_second: 100 TFLOPS, memory_bandwidth: 900 GB/s}]
machines:
- {name: a, devices: [{kind: my, count: 8}]%s}
)";
  const auto read = [&](const std::string& more) {
    std::string with = text;
    return std::string(Read(with.replace(with.find("%s"), 2, more)).status().message());
  };
  CHECK_THAT(read(""), Catch::Contains("machines[0].inside: is not given, and kind my has no "
                                       "peer_link") &&
                           Catch::Contains("give inside or tiers.machine"));
  CHECK(read(", inside: {bandwidth: 25 GB/s, latency: 10 us}") == "");
  CHECK_THAT(read(", inside: {latency: 10 us}"),
             Catch::Contains("machines[0].inside.bandwidth: must be above 0"));
}

TEST_CASE("links: inside, rack, site, region, pairs, and never faster than an uplink") {
  const auto graph = Read(R"(
machines:
- {name: a, site: s, rack: r, devices: [{kind: T4, count: 2}], inside: {bandwidth: 12 GB/s, latency: 1 us}}
- {name: b, site: s, rack: r, devices: [{kind: T4}]}
- {name: c, site: s, rack: q, devices: [{kind: T4}]}
- {name: d, site: t, devices: [{kind: T4}], uplink: {bandwidth: 0.5 Gbit/s, latency: 0.1 ms}}
- {name: e, site: u, devices: [{kind: T4}]}
tiers: {rack: {bandwidth: 100 Gbit/s, latency: 5 us}, site: {bandwidth: 10 Gbit/s, latency: 50 us},
        region: {bandwidth: 1 Gbit/s, latency: 10 ms}}
links: [{from: s, to: u, link: {bandwidth: 4 Gbit/s, latency: 3 ms}, one_way: true}]
)");
  REQUIRE(graph.ok());
  const auto rate = [&](int i, int j) { return graph->Between(i, j).bytes_per_second * 8 / 1e9; };
  CHECK(rate(0, 0) == 96);
  CHECK(rate(0, 1) == 100);
  CHECK(rate(0, 2) == 10);
  CHECK(rate(0, 3) == 0.5);
  CHECK(rate(0, 4) == 4);
  CHECK(rate(4, 0) == 1);
  CHECK(graph->DeviceName(graph->pools()[0], 1) == "a/1");
  CHECK(graph->devices() == 6);
}

TEST_CASE("equal devices of a machine are one pool, listed or counted, beside each other or not") {
  const auto listed = Read(
      "machines: [{name: a, devices: [{kind: T4}, {kind: L4}, {kind: T4}, {kind: tesla t4}, "
      "{kind: T4, memory: 15 GiB}, {kind: L4, count: 2}, {kind: T4, price: 9 USD/h}]}]\n"
      "kinds: [{name: tesla t4, memory: 16 GiB, dense_flops_per_second: 65 TFLOPS, "
      "memory_bandwidth: 320 GB/s, peer_link: {bandwidth: 4 GB/s}}]");
  REQUIRE(listed.status().message() == "");
  CHECK(listed->devices() == 8);
  REQUIRE(listed->pools().size() == 5);
  const DevicePool &t4 = listed->pools()[0], &l4 = listed->pools()[1];
  CHECK(t4.count == 2);
  CHECK(listed->DeviceName(t4, 0) == "a/0");
  CHECK(listed->DeviceName(t4, 1) == "a/2");
  CHECK(l4.count == 3);
  CHECK(listed->DeviceName(l4, 2) == "a/6");
  CHECK(listed->DeviceName(listed->pools()[4], 0) == "a/7");  // of another price
}

TEST_CASE("measured beats own kinds beats catalogue, and estimates are marked") {
  const auto graph = Read(R"(
machines:
- name: a
  devices:
  - {kind: A6000}
  - {kind: A5000, profile: {memory_read: 700 GB/s, prefill_efficiency: 0.5}}
  - {kind: T4, memory: 15 GiB}
  - {kind: mine}
kinds:
- {name: A6000, memory_bandwidth: 700 GB/s}
- {name: mine, memory: 8 GiB, memory_bandwidth: 100 GB/s, dense_flops_per_second: 10 TFLOPS}
)");
  REQUIRE(graph.ok());
  const DeviceSpec& a6000 = *graph->pools()[0].spec;
  CHECK(a6000.memory_bytes_per_second == 700e9);
  CHECK(a6000.flops_per_second == 154.8e12);
  const DeviceSpec& a5000 = *graph->pools()[1].spec;
  CHECK(a5000.effective_bandwidth() == 700e9);
  CHECK(a5000.compute_efficiency == 0.5);
  CHECK(graph->pools()[2].spec->memory_bytes == 15.0 * (1 << 30));
  CHECK(graph->EstimatedKinds() == std::vector<std::string>{"A6000", "mine"});
}

TEST_CASE("CPUs hide the products of decoding behind the reading of weights, GPUs do not") {
  const auto graph = Read(R"(
kinds: [{name: cpu-12mib, memory: 1 GiB, dense_flops_per_second: 1 TFLOPS, memory_bandwidth: 9 GB/s}]
machines:
- {name: a, devices: [{kind: cpu-12mib}, {kind: L4}]}
)");
  REQUIRE(graph.status().message() == "");
  for (const DevicePool& pool : graph->pools())
    CHECK(pool.spec->hides_decode == (pool.spec->kind == "cpu-12mib"));
}

TEST_CASE("a profile says measured of what was measured alone, and an empty one is refused") {
  const auto graph = Read(R"(
machines:
- name: a
  devices:
  - {kind: L4, profile: {memory_read: 250 GB/s}}
  - {kind: T4, profile: {prefill_efficiency: 0.3, decode_efficiency: 0.7}}
kinds: [{name: L4, efficiency_source: ""}]
)");
  REQUIRE(graph.ok());
  CHECK(graph->pools()[0].spec->effective_bandwidth() == 250e9);
  CHECK_FALSE(graph->pools()[1].spec->estimated);
  for (const char* empty : {"{}", "{measured_on: 2026-01-01}", "{prefill_efficiency: 0}"}) {
    INFO(empty);
    CHECK_THAT(
        ErrorOf(std::string("machines: [{name: a, devices: [{kind: T4, profile: ") + empty +
                "}]}]"),
        Catch::Contains(
            "c.yaml: machines[0].devices[0].profile: has no measured value; give memory_read, "));
  }
}

TEST_CASE("a profile's products are the device's own, by type of weights and rows") {
  const auto graph = Read(R"(
machines:
- name: a
  devices:
  - {kind: L4, profile: {prefill_efficiency: 0.5, products: [{weights: int4, rows: 64, read: 50 GB/s},
      {weights: int4, rows: 1, read: 200 GB/s}, {weights: int4, rows: 8, read: 250 GB/s},
      {weights: float16, rows: 1, read: 260 GB/s}]}}
  - {kind: L4}
)");
  REQUIRE(graph.status().message() == "");
  REQUIRE(graph->pools().size() == 2);
  const DeviceSpec& spec = *graph->pools()[0].spec;
  const ProductPoints& int4 = spec.products_of(WeightType::kInt4);
  REQUIRE(int4.size() == 3);
  CHECK(int4[0] == ProductPoint{1, 1 / 200e9});
  CHECK(int4[1] == ProductPoint{8, 1 / 200e9});  // more rows take no less time
  // What rows cost beyond the first, over prefill_efficiency.
  CHECK(int4[2].seconds_per_byte == Approx(1 / 200e9 + (1 / 50e9 - 1 / 200e9) / 0.5));
  CHECK(spec.products_of(WeightType::kHalf).size() == 1);
  CHECK(graph->pools()[1].spec->products_of(WeightType::kInt4).empty());
  const auto refusal = [](const std::string& product) {
    return ErrorOf("machines: [{name: a, devices: [{kind: T4, profile: {products: [{" + product +
                   "}]}}]}]");
  };
  const std::string place = "c.yaml: machines[0].devices[0].profile: products[0]: ";
  CHECK_THAT(refusal("weights: int3, rows: 1, read: 1 GB/s"),
             Catch::Contains(place + "weights \"int3\" are none of bfloat16"));
  CHECK_THAT(refusal("weights: int8, read: 1 GB/s"), Catch::Contains(place + "rows must be"));
  CHECK_THAT(refusal("weights: int8, rows: 8, read: 1 GB/s"),
             Catch::Contains("profile: products: give the rate of int8 with 1 row"));
  CHECK_THAT(refusal("weights: int8, rows: 1"), Catch::Contains(place + "read must be above 0"));
}

TEST_CASE("a latency that is not given is its tier's default, and is told; zero is zero") {
  const auto graph = Read(R"(
machines:
- {name: a, site: s, rack: r, devices: [{kind: T4, count: 2}], inside: {bandwidth: 12 GB/s}}
- {name: b, site: s, rack: r, devices: [{kind: T4}]}
- {name: c, site: s, rack: q, devices: [{kind: T4}]}
- {name: d, site: t, devices: [{kind: T4}], uplink: {bandwidth: 0.5 Gbit/s}}
tiers: {rack: {bandwidth: 100 Gbit/s, latency: 0 us}, site: {bandwidth: 10 Gbit/s},
        region: {bandwidth: 1 Gbit/s}}
)");
  REQUIRE(graph.status().message() == "");
  CHECK(graph->Between(0, 0).latency_seconds == 10e-6);
  CHECK(graph->Between(0, 1).latency_seconds == 0);
  CHECK(graph->Between(0, 2).latency_seconds == 50e-6);
  CHECK(graph->Between(0, 3).latency_seconds == 30e-3);  // the uplink adds none of its own
  CHECK(graph->default_latencies() ==
        std::map<std::string, double>{{"machine", 10e-6}, {"region", 30e-3}, {"site", 50e-6}});
}

TEST_CASE("incast is described by how many senders a link bears, and what each beyond costs") {
  const char* head = "machines: [{name: a, devices: [{kind: T4, count: 4}], inside: {bandwidth: ";
  const auto graph = Read(std::string(head) +
                          "12 GB/s, latency: 1 us, incast_senders: 2, incast_seconds_per_byte: "
                          "1e-10}}]");
  REQUIRE(graph.status().message() == "");
  CHECK(graph->Between(0, 0).incast_threshold == 2);
  CHECK(graph->Between(0, 0).incast_seconds_per_byte == 1e-10);
  CHECK_THAT(ErrorOf(std::string(head) + "12 GB/s, incast_senders: 2}}]"),
             Catch::Contains("machines[0].inside.incast_senders: needs incast_seconds_per_byte"));
}

TEST_CASE("a link that is described twice, or could mean two things, is refused") {
  const std::string two =
      "machines: [{name: a, site: s, devices: [{kind: T4}]}, {name: b, site: t, devices: "
      "[{kind: T4}]}]\ntiers: {region: {bandwidth: 1 Gbit/s, latency: 1 ms}}\n";
  const std::string link = "link: {bandwidth: 2 Gbit/s, latency: 1 ms}";
  CHECK(Read(two + "links: [{from: a, to: b, one_way: true, " + link + "}, {from: b, to: a, " +
             "one_way: true, " + link + "}]")
            .ok());
  for (const char* again : {"from: a, to: b", "from: b, to: a", "from: b, to: a, one_way: true"}) {
    INFO(again);
    CHECK_THAT(
        ErrorOf(two + "links: [{from: a, to: b, " + link + "}, {" + again + ", " + link + "}]"),
        Catch::Contains("c.yaml: links[1]: joins ") && Catch::Contains("as links[0] does already"));
  }
  CHECK_THAT(ErrorOf(two + "links: [{from: s, to: s, " + link + "}]"),
             Catch::Contains("c.yaml: links[0]: leads from s to itself"));
  CHECK_THAT(ErrorOf("machines: [{name: a, site: b, devices: [{kind: T4}]}, {name: b, site: t, "
                     "devices: [{kind: T4}]}]\ntiers: {region: {bandwidth: 1 Gbit/s}}"),
             Catch::Contains("c.yaml: machines: \"b\" is the name of a machine and of a site"));
  CHECK_THAT(ErrorOf(two + "sites: [{name: s, uplink: {bandwidth: 1 GB/s}}, {name: s, uplink: "
                           "{bandwidth: 2 GB/s}}]"),
             Catch::Contains("c.yaml: sites[1].name: two sites are named s"));
}

TEST_CASE("a market's machines are as many as it offers") {
  const auto graph = Read(
      "machines: [{name: m, available: 3, price: 2 USD/h, devices: [{kind: L4, count: 4}]}]\n"
      "tiers: {site: {bandwidth: 10 Gbit/s, latency: 1 ms}}\nbudget: 5 USD/h");
  REQUIRE(graph.ok());
  CHECK(graph->machines().size() == 3);
  CHECK(graph->machines()[2].name == "m.3");
  CHECK(graph->pools()[0].price_usd_per_hour == 0.5);
  CHECK(graph->budget_usd_per_hour() == 5);
}

TEST_CASE("bad descriptions are refused with file, key and reason") {
  CHECK_THAT(ErrorOf("budget: 1 USD/h"),
             Catch::Contains("c.yaml: machines: the cluster has no machine"));
  CHECK_THAT(ErrorOf("machines: [{name: a, devices: [{kind: Z9}]}]"),
             Catch::Contains("machines[0].devices[0].kind: \"Z9\" is no known device") &&
                 Catch::Contains("A100-80"));
  // Of many names, those that are like it.
  CHECK_THAT(ErrorOf("machines: [{name: a, devices: [{kind: A100}]}]"),
             Catch::Contains("\"A100\" is no known device (A100-80, A100-40); name one of these"));
  CHECK_THAT(ErrorOf("machines: [{name: a, devices: [{kind: Tesla T4}]}]"),
             Catch::Contains("is no known device (T4); name one of these, or describe it"));
  CHECK_THAT(ErrorOf("machines: [{name: a, devices: [{kind: RTX 4090 Ti}]}]"),
             Catch::Contains("is no known device (RTX4090, RTX4090-48, RTX4090D); name"));
  CHECK_THAT(ErrorOf("machines: [{name: a, devices: [{kind: RTX 5070 Ti 16}]}]"),
             Catch::Contains("is no known device (RTX5070, RTX5070Ti); name"));
  CHECK_THAT(ErrorOf("machines: [{name: a, devices: [{kind: \"A100 \"}]}]"),
             Catch::Contains("is no known device (A100-80, A100-40); name"));
  CHECK_THAT(ErrorOf("machines: [{name: a, devices: [{kind: MI300X}]}]"),
             Catch::Contains("A100-80, ") && Catch::Contains("T4, "));
  CHECK_THAT(
      ErrorOf("machines: [{name: a, devices: [{kind: T4}]}, {name: b, devices: [{kind: T4}]}]"),
      Catch::Contains("machine b cannot be reached from a: give tiers.site"));
  CHECK_THAT(
      ErrorOf("machines: [{name: a, devices: [{kind: T4}]}]\ntiers: {rack: {bandwidth: 0 GB/s}}"),
      Catch::Contains("tiers.rack.bandwidth: must be above 0"));
  CHECK_THAT(
      ErrorOf("machines: [{name: a, devices: [{kind: T4}]}, {name: a, devices: [{kind: T4}]}]"),
      Catch::Contains("two machines are named a"));
  CHECK_THAT(ErrorOf("machines: [{name: a}]"), Catch::Contains("machine a has no device"));
  CHECK_THAT(ErrorOf("machines: [{name: a, devices: [{kind: T4}]}]\nlinks: [{from: a, to: q}]"),
             Catch::Contains("links[0]: \"q\" is neither a machine nor a site"));
}

TEST_CASE("figures that no cluster has are refused before anything is made of them") {
  CHECK_THAT(ErrorOf("machines: [{name: a, available: 2000000000, devices: [{kind: T4}]}]"),
             Catch::Contains("machines[0]: the cluster has more than 20000 machines"));
  CHECK_THAT(ErrorOf("machines: [{name: a, available: -1, devices: [{kind: T4}]}]"),
             Catch::Contains("machines[0].available: must not be negative"));
  CHECK_THAT(ErrorOf("machines: [{name: a, devices: [{kind: T4, count: 600}, {kind: L40, count: "
                     "2000000000}]}]"),
             Catch::Contains("machines[0].devices[1].count: a machine has at most 1000 devices"));
}

TEST_CASE("every example is read") {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator("deploy/clusters")) {
    if (entry.path().extension() != ".yaml" || entry.path().stem().extension() == ".layout")
      continue;
    INFO(entry.path());
    v1::Cluster cluster;
    CHECK(ReadDocumentFile(entry.path().string(), &cluster).message() == "");
    const auto graph = MakeClusterGraph(cluster, *BuiltInDevices(), entry.path().string());
    CHECK(graph.status().message() == "");
    ++files;
  }
  CHECK(files == 8);
}

}  // namespace
}  // namespace tessera::scheduler
