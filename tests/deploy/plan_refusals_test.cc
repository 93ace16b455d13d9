// Every bad description is refused with file, key and reason.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <string>

#include "deploy/plan_command.h"
#include "scheduler/input/catalogue.h"

namespace tessera::deploy {
namespace {

std::string Written(const std::string& name, const std::string& text) {
  const char* folder = std::getenv("TEST_TMPDIR");
  const std::string path = std::string(folder != nullptr ? folder : "/tmp") + "/" + name;
  std::ofstream(path) << text;
  return path;
}

constexpr char kGoodWorkload[] =
    "classes: [{lengths: [{prompt_tokens: 100, output_tokens: 20}]}]\n";

std::string Reason(const std::string& cluster, const std::string& workload = kGoodWorkload,
                   const std::string& model = "Qwen2.5-7B",
                   const std::string& goal = "throughput") {
  PlanFlags flags;
  flags.cluster = Written("cluster.yaml", cluster);
  flags.workload = Written("workload.yaml", workload);
  flags.model = model;
  flags.goal = goal;
  return std::string(PlanFromFiles(flags).status().message());
}

const std::string kOne = "machines: [{name: a, devices: [{kind: A100-40, count: 2}]}]\n";
const std::string kTwo =
    "machines: [{name: a, devices: [{kind: T4}]}, {name: b, devices: [{kind: T4}]}]\n";

using Catch::Contains;

}  // namespace

TEST_CASE("good descriptions pass, so what follows is refused for its fault alone") {
  CHECK(Reason(kOne) == "");
  CHECK(Reason(kTwo + "tiers: {site: {bandwidth: 10 Gbit/s, latency: 1 us}}\n") == "");
}

TEST_CASE("keys and units") {
  CHECK_THAT(Reason("machines: [{name: a, devises: [{kind: T4}]}]\n"),
             Contains("cluster.yaml:1: machines[0].devises: unknown key; did you mean devices?"));
  CHECK_THAT(Reason(kOne + "tiers: {rack: {bandwidth: 40, latency: 1 us}}\n"),
             Contains("cluster.yaml:2: tiers.rack.bandwidth: \"40\" has no unit"));
  CHECK_THAT(Reason(kOne + "tiers: {rack: {bandwidth: 40 parsecs, latency: 1 us}}\n"),
             Contains("tiers.rack.bandwidth") && Contains("unknown unit \"parsecs\""));
  CHECK_THAT(Reason("machines: [{name: a, devices: [{kind: T4, count: two}]}]\n"),
             Contains("machines[0].devices[0].count") && Contains("is not a number"));
  CHECK_THAT(Reason("machines: [{name: a, name: b}]\n"), Contains("given twice"));
  CHECK_THAT(Reason("machines: {name: a}\n"), Contains("machines: must be a list"));
  CHECK_THAT(Reason(""), Contains("the document is empty"));
  CHECK_THAT(Reason("machines: [\n"), Contains("is neither YAML nor JSON"));
}

TEST_CASE("machines, kinds and links") {
  CHECK_THAT(Reason("tiers: {}\n"), Contains("machines: the cluster has no machine"));
  CHECK_THAT(Reason("machines: [{name: a}]\n"),
             Contains("machines[0].devices: machine a has no device"));
  CHECK_THAT(Reason("machines: [{devices: [{kind: T4}]}]\n"),
             Contains("machines[0].name: is missing"));
  CHECK_THAT(Reason("machines: [{name: a, devices: [{kind: T5}]}]\n"),
             Contains("machines[0].devices[0].kind: \"T5\" is no known device"));
  CHECK_THAT(
      Reason(
          "machines: [{name: a, devices: [{kind: mine}]}]\nkinds: [{name: mine, memory: 8 GiB}]\n"),
      Contains("kind mine needs memory, memory_bandwidth and dense_flops_per_second"));
  CHECK_THAT(Reason(kTwo), Contains("tiers: machine b cannot be reached from a"));
  CHECK_THAT(Reason(kTwo + "tiers: {site: {bandwidth: 0 Gbit/s, latency: 1 us}}\n"),
             Contains("tiers.site.bandwidth: must be above 0"));
  CHECK_THAT(Reason(kTwo + "tiers: {site: {bandwidth: 1 Gbit/s}}\nlinks: [{from: a, to: z, link: "
                           "{bandwidth: 1 Gbit/s}}]\n"),
             Contains("links[0]: \"z\" is neither a machine nor a site"));
  CHECK_THAT(
      Reason("machines: [{name: a, devices: [{kind: T4}]}, {name: a, devices: [{kind: T4}]}]\n"),
      Contains("two machines are named a"));
}

TEST_CASE("what would be read as something else is refused") {
  for (const char* name : {"a/0", "a;b", "a b"}) {
    CHECK_THAT(Reason("machines: [{name: \"" + std::string(name) + "\", devices: [{kind: T4}]}]\n"),
               Contains("cluster.yaml: machines[0].name: machine \"" + std::string(name)) &&
                   Contains("rename it, for example to a-"));
  }
  CHECK_THAT(Reason("machines: [{name: \"a\tb\", devices: [{kind: T4}]}]\n"),
             Contains("cluster.yaml:1: machines[0].name: must be of one line"));
  CHECK_THAT(Reason(kOne + "kinds: [{name: x}, {name: x}]\n"),
             Contains("kinds[1].name: two kinds are named x"));
  CHECK_THAT(Reason(kOne + "kinds: [{name: A100-40, prefill_efficiency: 1.5}]\n"),
             Contains("machines[0].devices[0].kind: kind A100-40") && Contains("at most 1"));
  CHECK_THAT(
      Reason("machines: [{name: a, devices: [{kind: T4, profile: {decode_efficiency: 2}}]}]"),
      Contains("machines[0].devices[0].profile") && Contains("at most 1"));
  CHECK_THAT(Reason(kTwo + "tiers: {site: {bandwidth: 1 Gbit/s}}\nlinks: [{from: a, to: a, link: "
                           "{bandwidth: 1 Gbit/s}}]\n"),
             Contains("links[0]: leads from a to itself"));
}

TEST_CASE("a limit that nothing keeps is missed by little, for a price it is refused") {
  const std::string workload =
      "objectives: {time_per_output_token: 1 us}\n" + std::string(kGoodWorkload);
  CHECK(Reason(kOne, workload) == "");
  CHECK_THAT(
      Reason(kOne, "requests_per_second: 1\n" + workload, "Qwen2.5-7B", "price"),
      Contains("workload.yaml: no placement was found with at most 0.001 ms per output token") &&
          Contains("allow more time"));
  CHECK_THAT(Reason(kOne, "requests_per_second: 1000\n" + std::string(kGoodWorkload), "Qwen2.5-7B",
                    "price"),
             Contains("workload.yaml: requests_per_second (--rate): 1000 requests/s are asked") &&
                 Contains("all these devices serves"));
  CHECK_THAT(
      Reason(kOne + "budget: 0.5 USD/h\n", kGoodWorkload, "Qwen2.5-7B", "budget"),
      Contains("cluster.yaml: budget: no plan that serves the model costs 0.5 USD/h or less"));
}

TEST_CASE("a model larger than everything: how many GiB are missing") {
  const std::string reason = Reason(kOne, kGoodWorkload, "Llama-2-70B");
  // 128.48 GiB of weights and 0.04 of KV, 2 x (40 * 0.9 - 1) = 70 GiB usable.
  CHECK_THAT(reason, Contains("Llama-2-70B does not fit") && Contains("70.00 GiB") &&
                         Contains("58.5") && Contains("GiB are missing"));
}

TEST_CASE("workloads, and what an objective needs") {
  CHECK_THAT(Reason(kOne, "classes: []\n"), Contains("workload.yaml"));
  CHECK_THAT(Reason(kOne, "classes: [{lengths: [{prompt_tokens: -5, output_tokens: 2}]}]\n"),
             Contains("workload.yaml") && Contains("prompt_tokens"));
  CHECK_THAT(Reason(kOne, "trace: nowhere.csv\n"), Contains("nowhere.csv"));
  CHECK_THAT(Reason(kOne, kGoodWorkload, "Qwen2.5-7B", "price"),
             Contains("requests_per_second") && Contains("needs the rate"));
  CHECK_THAT(Reason(kOne, kGoodWorkload, "Qwen2.5-7B", "budget"),
             Contains("cluster.yaml: budget:") && Contains("needs one"));
  CHECK_THAT(Reason(kOne, kGoodWorkload, "Llama-9"),
             Contains("no built-in model is called Llama-9"));
}

TEST_CASE("a device whose price nobody knows is not rented as if it cost nothing") {
  const std::string unpriced = "machines: [{name: a, devices: [{kind: H20}]}]\nbudget: 2 USD/h\n";
  CHECK(Reason(unpriced) == "");
  CHECK_THAT(Reason(unpriced, kGoodWorkload, "Qwen2.5-7B", "budget"),
             Contains("cluster.yaml: machine a: the price of H20 is not known") &&
                 Contains("give the machine's price"));
  CHECK(Reason("machines: [{name: a, price: 1 USD/h, devices: [{kind: H20}]}]\nbudget: 2 USD/h\n",
               kGoodWorkload, "Qwen2.5-7B", "budget") == "");
}

TEST_CASE("the catalogue's estimates are plausible") {
  const auto catalogue = scheduler::BuiltInDevices();
  REQUIRE(catalogue.ok());
  CHECK(catalogue->kinds_size() >= 20);
  for (const v1::DeviceKind& kind : catalogue->kinds()) {
    INFO(kind.name());
    CHECK(kind.memory_bytes() >= int64_t{6} << 30);
    CHECK(kind.prefill_efficiency() > 0.2);
    CHECK(kind.prefill_efficiency() < 1);
    CHECK(kind.decode_efficiency() > 0.5);
    CHECK(kind.decode_efficiency() < 1);
    CHECK((kind.peer_link().bandwidth_bytes_per_second() > 0) == kind.has_peer_link());
  }
  // Cards that are easily confused.
  CHECK(scheduler::FindKind(*catalogue, "A10G")->dense_flops_per_second() == 70e12);
  CHECK(scheduler::FindKind(*catalogue, "A10")->dense_flops_per_second() == 125e12);
}

}  // namespace tessera::deploy
