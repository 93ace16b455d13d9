#include "scheduler/planner/plan_picture.h"

#include <catch2/catch.hpp>
#include <string>

#include "proto/document.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/planner/planner.h"
#include "scheduler/planner/written_layout.h"

namespace tessera::scheduler {
namespace {

int Times(const std::string& text, const std::string& what) {
  int times = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++times;
  return times;
}

}  // namespace

TEST_CASE("a picture shows every machine, device, stage and loaded link, and is well formed") {
  PlannerInput input;
  REQUIRE(ReadDocument(R"(
machines:
- {name: "a<1>", site: x, devices: [{kind: A100-40, count: 4}]}
- {name: b, site: x, devices: [{kind: A100-40, count: 4}]}
- {name: c, site: y, devices: [{kind: L4, count: 3}]}
tiers: {site: {bandwidth: 25 Gbit/s, latency: 50 us}, region: {bandwidth: 1 Gbit/s, latency: 5 ms}}
)",
                       "cluster.yaml", &input.cluster)
              .message() == "");
  input.catalogue = *BuiltInDevices();
  input.model = *BuiltInModel("Qwen2.5-14B");
  auto* lengths = input.workload.add_classes()->add_lengths();
  lengths->set_prompt_tokens(500);
  lengths->set_output_tokens(100);
  v1::WrittenLayout layout;
  REQUIRE(ReadDocument(R"(
replicas:
- {role: prefill, stages: [{devices: ["a<1>/0..1"], layers: 48}]}
- {role: decode, stages: [{devices: [b/0..1], layers: 24}, {devices: ["a<1>/2"], layers: 24}]}
)",
                       "layout.yaml", &layout)
              .message() == "");
  PlannerOptions options;
  options.given_search = GivenLayout(layout, "layout.yaml");
  const auto plan = MakePlan(input, options);
  REQUIRE(plan.status().message() == "");
  const auto graph = MakeClusterGraph(input.cluster, input.catalogue, "cluster.yaml");
  REQUIRE(graph.ok());
  const std::string picture = PlanPicture(*plan, *graph);
  using Catch::Contains;
  CHECK_THAT(picture, Contains("site x") && Contains("site y") && Contains("a&lt;1&gt;"));
  CHECK_THAT(picture, !Contains("a<1>") && Contains("</svg>"));
  CHECK(Times(picture, "<title>") == 11);
  CHECK(Times(picture, ">idle<") == 6);
  CHECK(Times(picture, ">r0 P s0<") == 2);
  CHECK(Times(picture, ">r1 D s0<") == 2);
  CHECK(Times(picture, ">24-47<") == 1);
  CHECK(Times(picture, "marker-end") == plan->links_size());
  CHECK(plan->links_size() == 2);  // KV there, activations back
  CHECK(picture == PlanPicture(*plan, *graph));
}

}  // namespace tessera::scheduler
