#include "scheduler/planner/plan_picture.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>
#include <vector>

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

struct Shape {
  double left = 0, top = 0, right = 0, bottom = 0;
  std::string text;
};

double Number(const std::string& tag, const std::string& key, double otherwise) {
  const size_t at = tag.find(" " + key + "=\"");
  return at == std::string::npos ? otherwise : std::stod(tag.substr(at + key.size() + 3));
}

// Every element of that name, texts as wide as wide letters make them.
std::vector<Shape> ShapesOf(const std::string& picture, const std::string& name) {
  std::vector<Shape> shapes;
  const std::string open = "<" + name + " ";
  for (size_t at = picture.find(open); at != std::string::npos; at = picture.find(open, at + 1)) {
    const size_t end = picture.find('>', at);
    const std::string tag = picture.substr(at, end - at);
    const double x = Number(tag, "x", 0), y = Number(tag, "y", 0);
    if (name == "rect") {
      const double width = Number(tag, "width", 0), height = Number(tag, "height", 0);
      shapes.push_back({x, y, x + width, y + height, tag});
      continue;
    }
    const std::string text = picture.substr(end + 1, picture.find('<', end) - end - 1);
    const double size = Number(tag, "font-size", 12);
    const double width = Number(tag, "textLength", 0.58 * size * static_cast<double>(text.size()));
    const double left = tag.find("\"middle\"") != std::string::npos ? x - width / 2 : x;
    shapes.push_back({left, y - 0.75 * size, left + width, y + 0.2 * size, text});
  }
  return shapes;
}

// Everything lies within the picture, and no two texts on each other.
void CheckReadable(const std::string& picture) {
  const size_t box = picture.find("viewBox=\"0 0 ");
  REQUIRE(box != std::string::npos);
  char* end = nullptr;
  const double width = std::strtod(picture.c_str() + box + 13, &end);
  const double height = std::strtod(end, nullptr);
  // Links pass behind machines and their devices, their numbers before them.
  const size_t last_link = picture.rfind("marker-end"), first_number = picture.find("<circle");
  if (last_link != std::string::npos) {
    CHECK(last_link < picture.find("<title>"));
    CHECK(first_number > picture.rfind("<title>"));
  }
  const std::vector<Shape> texts = ShapesOf(picture, "text");
  std::vector<Shape> all = texts;
  for (const Shape& rect : ShapesOf(picture, "rect")) {
    if (rect.text.find("100%") == std::string::npos) all.push_back(rect);
  }
  for (const Shape& shape : all) {
    INFO(shape.text << " at " << shape.left << ", " << shape.top);
    CHECK(shape.left >= 0);
    CHECK(shape.top >= 0);
    CHECK(shape.right <= width);
    CHECK(shape.bottom <= height);
  }
  for (size_t i = 0; i < texts.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const Shape &a = texts[i], &b = texts[j];
      const bool apart =
          a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
      INFO(a.text << " at " << a.left << ", " << a.top << " and " << b.text << " at " << b.left
                  << ", " << b.top);
      CHECK(apart);
    }
  }
}

}  // namespace

TEST_CASE("58 devices in four regions can be read, whatever their links") {
  PlannerInput input;
  REQUIRE(ReadDocumentFile("deploy/clusters/four_regions_58.yaml", &input.cluster).message() == "");
  input.catalogue = *BuiltInDevices();
  input.model = *BuiltInModel("Llama-2-70B");
  auto* lengths = input.workload.add_classes()->add_lengths();
  lengths->set_prompt_tokens(1155);
  lengths->set_output_tokens(211);
  PlannerOptions options;
  options.simulate = false;
  const auto graph = MakeClusterGraph(input.cluster, input.catalogue, "cluster.yaml");
  REQUIRE(graph.ok());
  const auto planned = MakePlan(input, options);
  REQUIRE(planned.status().message() == "");
  const std::string picture = PlanPicture(*planned, *graph);
  CHECK(Times(picture, "<title>") == 58);
  CheckReadable(picture);
  // Pipelines over machines near and far, so that links go everywhere.
  v1::WrittenLayout layout;
  REQUIRE(ReadDocument(R"(
replicas:
- {stages: [{devices: [virginia-1/0..3], layers: 40}, {devices: [virginia-2/0..3], layers: 40}]}
- {stages: [{devices: [virginia-1/4..7], layers: 60}, {devices: [ireland-1/0..3], layers: 20}]}
- {stages: [{devices: [virginia-2/4..7], layers: 60}, {devices: [tokyo-1/0..3], layers: 20}]}
- {stages: [{devices: [oregon-1/0..3], layers: 40}, {devices: [oregon-2/0..3], layers: 40}]}
- {stages: [{devices: [oregon-1/4..7], layers: 60}, {devices: [ireland-2/0..3], layers: 20}]}
- {stages: [{devices: [oregon-3/0..3], layers: 50}, {devices: [tokyo-1/4..7], layers: 30}]}
)",
                       "layout.yaml", &layout)
              .message() == "");
  options.given_search = GivenLayout(layout, "layout.yaml");
  const auto crowded = MakePlan(input, options);
  REQUIRE(crowded.status().message() == "");
  CHECK(crowded->links_size() == 6);
  CheckReadable(PlanPicture(*crowded, *graph));
}

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
  v1::DeploymentPlan surviving = *plan;
  surviving.mutable_survival()->set_requests_per_second(0.25);
  CHECK_THAT(picture, !Contains("after the loss"));
  CHECK_THAT(PlanPicture(surviving, *graph),
             Contains(" requests/s, 0.250 after the loss of any one machine</text>"));
  v1::DeploymentPlan refuted = *plan;
  refuted.mutable_simulated()->set_attained_requests_per_second(0.125);
  CHECK_THAT(PlanPicture(refuted, *graph), Contains(" requests/s, by simulation: 0.125</text>"));
}

TEST_CASE("a picture says which of its figures are estimates, in lines that fit") {
  PlannerInput input;
  input.catalogue = *BuiltInDevices();
  input.model = *BuiltInModel("Llama-3-8B");
  v1::Machine& machine = *input.cluster.add_machines();
  machine.set_name("a");
  for (const v1::DeviceKind& kind : input.catalogue.kinds())
    machine.add_devices()->set_kind(kind.name());
  auto* lengths = input.workload.add_classes()->add_lengths();
  lengths->set_prompt_tokens(500);
  lengths->set_output_tokens(100);
  PlannerOptions options;
  options.simulate = false;
  v1::WrittenLayout layout;
  REQUIRE(ReadDocument("replicas: [{stages: [{devices: [a/0], layers: 16}, {devices: [a/1], "
                       "layers: 16}]}]",
                       "layout.yaml", &layout)
              .message() == "");
  options.given_search = GivenLayout(layout, "layout.yaml");
  auto plan = MakePlan(input, options);
  REQUIRE(plan.status().message() == "");
  const auto graph = MakeClusterGraph(input.cluster, input.catalogue, "cluster.yaml");
  REQUIRE(graph.ok());
  const std::string picture = PlanPicture(*plan, *graph);
  CHECK(Times(picture, "ESTIMATED, not measured: efficiencies of ") == 1);
  CHECK_THAT(picture, Catch::Contains("links inside 1 machine"));
  CheckReadable(picture);
  plan->clear_assumptions();  // measured through and through
  CHECK(Times(PlanPicture(*plan, *graph), "ESTIMATED") == 0);
}

}  // namespace tessera::scheduler
