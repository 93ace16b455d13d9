#include "proto/document.h"

#include <catch2/catch.hpp>

#include "proto/cluster.pb.h"
#include "proto/plan.pb.h"
#include "proto/quantity.h"
#include "proto/workload.pb.h"

namespace tessera {
namespace {

std::string ErrorOf(std::string_view text) {
  v1::Cluster cluster;
  return std::string(ReadDocument(text, "c.yaml", &cluster).message());
}

TEST_CASE("the short form of a cluster") {
  const std::string text = R"(
machines: [{name: a, site: x, devices: [{kind: A6000, count: 4}],
            inside: {bandwidth: "25 GB/s", latency: "10 us"}}]
tiers: {rack: {bandwidth: "40 Gbit/s", latency: "50 us"}}
budget: 1.99 USD/h
)";
  v1::Cluster cluster;
  REQUIRE(ReadDocument(text, "c.yaml", &cluster).ok());
  REQUIRE(cluster.machines_size() == 1);
  CHECK(cluster.machines(0).devices(0).count() == 4);
  CHECK(cluster.machines(0).inside().bandwidth_bytes_per_second() == 25e9);
  CHECK(cluster.machines(0).inside().latency_seconds() == Approx(10e-6));
  CHECK(cluster.tiers().rack().bandwidth_bytes_per_second() == 5e9);
  CHECK(cluster.budget_usd_per_hour() == 1.99);
}

TEST_CASE("JSON is read alike, bare numbers under the full name, enums by their short name") {
  v1::Cluster cluster;
  REQUIRE(ReadDocument(R"({"tiers": {"site": {"bandwidth_bytes_per_second": 1e9}}})", "c.json",
                       &cluster)
              .ok());
  CHECK(cluster.tiers().site().bandwidth_bytes_per_second() == 1e9);
  v1::DeploymentPlan plan;
  REQUIRE(ReadDocument("weight_dtype: float16\nreplicas: [{role: prefill}]\n", "p", &plan).ok());
  CHECK(plan.weight_dtype() == v1::DATA_TYPE_FLOAT16);
  CHECK(plan.replicas(0).role() == v1::REPLICA_ROLE_PREFILL);
}

TEST_CASE("an unknown key that says what a name says in other words suggests it") {
  const auto of_workload = [](const std::string& text) {
    v1::Workload workload;
    return std::string(ReadDocument(text, "w.yaml", &workload).message());
  };
  CHECK(of_workload("rate: 3\n") ==
        "w.yaml:1: rate: unknown key; did you mean requests_per_second?");
  CHECK(of_workload("variation: 3\n") ==
        "w.yaml:1: variation: unknown key; did you mean arrival_variation?");
  CHECK(of_workload("classes: [{lengths: [{tokens: 3}]}]\n") ==
        "w.yaml:1: classes[0].lengths[0].tokens: unknown key; did you mean prompt_tokens or "
        "output_tokens?");
  CHECK(ErrorOf("kinds: [{dense_flops: 100 TFLOPS}]") ==
        "c.yaml:1: kinds[0].dense_flops: unknown key; did you mean dense_flops_per_second?");
  CHECK_THAT(ErrorOf("kinds: [{xyz: 1}]"),
             Catch::Contains("known here: name, ") && Catch::Contains(", memory, ") &&
                 Catch::Contains(", dense_flops_per_second, peer_link, "));
  // Of a short key one wrong letter is a slip, two are another word.
  CHECK_THAT(of_workload("race1: 3\n"), Catch::Contains("unknown key; did you mean trace?"));
  CHECK_THAT(of_workload("tree: 3\n"), Catch::Contains("unknown key; known here: requests_per"));
}

TEST_CASE("faults name file, line, key and reason") {
  CHECK(ErrorOf("machines:\n- name: a\n  sites: x\n") ==
        "c.yaml:3: machines[0].sites: unknown key; did you mean site?");
  CHECK_THAT(ErrorOf("machines: [{name: a, inside: {bandwidth: 25}}]"),
             Catch::Contains("machines[0].inside.bandwidth") &&
                 Catch::Contains("\"25\" has no unit") && Catch::Contains("\"25 GB/s\""));
  CHECK_THAT(ErrorOf("tiers: {rack: {bandwidth: 25 Gb/s}}"),
             Catch::Contains("unknown unit \"Gb/s\""));
  for (const char* bits : {"25 Gb/s", "25 Gbps", "25 GBit/s"}) {
    CHECK_THAT(ErrorOf(std::string("tiers: {rack: {bandwidth: ") + bits + "}}"),
               Catch::Contains("write for example \"25 Gbit/s\""));
  }
  CHECK_THAT(ErrorOf("tiers: {rack: {bandwidth: -25 GB/s}}"), Catch::Contains("not negative"));
  CHECK_THAT(ErrorOf("tiers: {rack: {bandwidth_bytes_per_second: -25}}"),
             Catch::Contains("bandwidth_bytes_per_second: must not be negative"));
  CHECK_THAT(ErrorOf("machines: {name: a}"), Catch::Contains("machines: must be a list"));
  CHECK_THAT(ErrorOf("machines: [{name: a, name: b}]"), Catch::Contains("is given twice"));
  CHECK_THAT(ErrorOf("tiers: {rack: {latency: 1 s, latency_seconds: 2}}"),
             Catch::Contains("is given twice"));
  CHECK_THAT(ErrorOf("machines: [{devices: [{count: 1.5}]}]"),
             Catch::Contains("not a whole number"));
  CHECK_THAT(ErrorOf("machines: [{devices: [{count: 3000000000}]}]"), Catch::Contains("too large"));
  CHECK_THAT(ErrorOf("links: [{one_way: perhaps}]"), Catch::Contains("true or false"));
  CHECK_THAT(ErrorOf("machines: ["),
             Catch::Contains("c.yaml:") && Catch::Contains("neither YAML nor JSON"));
  CHECK_THAT(ErrorOf(""), Catch::Contains("is empty"));
  CHECK_THAT(ErrorOf("- 1"), Catch::Contains("must be a mapping"));
  CHECK_THAT(ErrorOf("machines: [{name: caf\xe9}]"),
             Catch::Contains("machines[0].name: must be UTF-8"));
  CHECK(ErrorOf("machines: [{name: caf\xc3\xa9}]") == "");
}

TEST_CASE("what no machine has is refused by its key, with a unit and without") {
  for (const char* text :
       {"machines: [{name: a, price: 1e308 USD/h}]", "machines: [{name: a, price: 1e10 USD/h}]",
        "machines: [{name: a, price_usd_per_hour: 1e308}]"}) {
    CHECK_THAT(ErrorOf(text),
               Catch::StartsWith("c.yaml:1: machines[0].price") && Catch::Contains("is too large"));
  }
  CHECK_THAT(ErrorOf("kinds: [{dense_flops_per_second: 1e300}]"), Catch::Contains("too large"));
  CHECK_THAT(ErrorOf("tiers: {site: {latency: 1e200 h}}"), Catch::Contains("latency: \"1e200 h\""));
  CHECK_THAT(ErrorOf("kinds: [{prefill_efficiency: 1e300}]"), Catch::Contains("too large"));
  CHECK(ErrorOf("budget: 1e6 USD/h") == "");
}

TEST_CASE("text that would garble what is printed is refused, and is not printed") {
  for (const char* name :
       {R"("a\tb")", R"("a\nb")", R"("\e[31m")", R"("a\x7f")", "\"a\xc2\x9b\""}) {
    INFO(name);
    const std::string error = ErrorOf(std::string("machines: [{name: ") + name + "}]");
    CHECK(error ==
          "c.yaml:1: machines[0].name: must be of one line, without tabs and other control "
          "characters");
  }
  CHECK_THAT(ErrorOf(R"("\e[31mx": 1)"), Catch::Contains("c.yaml:1: ?[31mx: unknown key"));
  CHECK_THAT(ErrorOf(R"(tiers: {site: {bandwidth: "\e[31m"}})"),
             Catch::Contains("\"?[31m\" does not begin with a number"));
  v1::Workload workload;
  CHECK(ReadDocument("trace_text: \"a\\nb\"", "w.yaml", &workload).message() == "");
  CHECK(workload.trace_text() == "a\nb");
}

TEST_CASE("a second document is refused, not left out") {
  CHECK(ErrorOf("budget: 1 USD/h\n---\nbudget: 2 USD/h\n") ==
        "c.yaml:3: another document begins here, after \"---\"; a file has one");
  CHECK_THAT(ErrorOf("budget: 1 USD/h\n...\nbudget: 2 USD/h\n"), Catch::Contains("c.yaml:3: "));
  CHECK_THAT(ErrorOf("budget: 1 USD/h\n--- {budget: 2 USD/h}\n"), Catch::Contains("c.yaml:2: "));
  CHECK(ErrorOf("%YAML 1.2\n# costs\n--- \nbudget: 1 USD/h # ---\n... # end\n\n") == "");
  CHECK(ErrorOf("---\nbudget: 1 USD/h\n...\n") == "");
  CHECK(ErrorOf("---\nbudget: 1 USD/h\n---\n") == "");
}

TEST_CASE("aliases cannot blow a small document up") {
  std::string text = "machines:\n- &a {name: x, devices: [";
  for (int i = 0; i < 1000; ++i) text += "{kind: T4},";
  text += "]}\n";
  for (int i = 0; i < 2000; ++i) text += "- *a\n";
  CHECK_THAT(ErrorOf(text), Catch::Contains("more than 1000000 values"));
}

TEST_CASE("quantities") {
  CHECK(*ParseQuantity("80 GiB", Dimension::kBytes) == 80.0 * (1 << 30));
  CHECK(*ParseQuantity("80GB", Dimension::kBytes) == 80e9);
  CHECK(*ParseQuantity("10 \u00b5s", Dimension::kSeconds) == Approx(1e-5));
  CHECK(*ParseQuantity("155 TFLOPS", Dimension::kFlopsPerSecond) == 155e12);
  CHECK(*ParseQuantity("90 %", Dimension::kRatio) == Approx(0.9));
  for (const char* bad :
       {"", "GiB", "nan GiB", "inf GiB", "80 gib", "80 GiB/s", "1e999 GB", "1e30 GB"}) {
    CHECK_FALSE(ParseQuantity(bad, Dimension::kBytes).ok());
  }
}

}  // namespace
}  // namespace tessera
