#include "scheduler/planner/report/plan_picture.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "proto/document.h"
#include "scheduler/input/catalogue.h"
#include "scheduler/planner/planner.h"
#include "scheduler/planner/report/link_bundles.h"
#include "scheduler/planner/written_layout.h"
#include "tests/scheduler/planner/written_input.h"

namespace tessera::scheduler {
namespace {

constexpr char kWorkload[] = "classes: [{lengths: [{prompt_tokens: 500, output_tokens: 100}]}]";

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
  // On a screen it is shown no wider than that.
  constexpr double kScreen = 1900, kMinLetters = 10;
  double letters = 12;
  for (size_t at = picture.find("font-size=\""); at != std::string::npos;
       at = picture.find("font-size=\"", at + 1))
    letters = std::min(letters, std::stod(picture.substr(at + 11)));
  CHECK(letters * std::min(1.0, kScreen / width) >= kMinLetters);
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

struct Lab {
  double l = 0, a = 0, b = 0;
};

// Of "#78b4e1", for a white of D65.
Lab LabOf(const std::string& colour) {
  double rgb[3];
  for (size_t i = 0; i < 3; ++i) {
    const double part = std::stoi(colour.substr(1 + 2 * i, 2), nullptr, 16) / 255.0;
    rgb[i] = part <= 0.04045 ? part / 12.92 : std::pow((part + 0.055) / 1.055, 2.4);
  }
  const auto root = [](double t) { return t > 0.008856 ? std::cbrt(t) : 7.787 * t + 16 / 116.0; };
  const double x = root((0.41246 * rgb[0] + 0.35758 * rgb[1] + 0.18044 * rgb[2]) / 0.95047);
  const double y = root(0.21267 * rgb[0] + 0.71515 * rgb[1] + 0.07217 * rgb[2]);
  const double z = root((0.01933 * rgb[0] + 0.11919 * rgb[1] + 0.9503 * rgb[2]) / 1.08883);
  return {116 * y - 16, 500 * (x - y), 200 * (y - z)};
}

double Apart(const std::string& one, const std::string& other) {
  const Lab a = LabOf(one), b = LabOf(other);
  return std::hypot(a.l - b.l, a.a - b.a, a.b - b.b);
}

// By device, from the squares.
std::map<std::string, std::string> ColoursOf(const std::string& picture) {
  std::map<std::string, std::string> colours;
  for (size_t at = picture.find("<title>"); at != std::string::npos;
       at = picture.find("<title>", at + 1)) {
    const size_t fill = picture.rfind("fill=\"", at) + 6, name = at + 7;
    colours[picture.substr(name, picture.find(',', name) - name)] = picture.substr(fill, 7);
  }
  return colours;
}

// Replicas of the same machine, and those of machines that follow each other, can be told apart,
// each has one colour, and none that of idle devices.
void CheckColours(const v1::DeploymentPlan& plan, const v1::Cluster& cluster,
                  const std::string& picture) {
  constexpr double kApart = 25;
  const std::map<std::string, std::string> colours = ColoursOf(picture);
  std::map<std::string, std::set<int>> in_machine;
  std::vector<std::string> of_replica;
  for (int r = 0; r < plan.replicas_size(); ++r) {
    for (const v1::Stage& stage : plan.replicas(r).stages()) {
      for (const v1::PlannedWorker& worker : stage.workers()) {
        const std::string& colour = colours.at(worker.device());
        of_replica.resize(static_cast<size_t>(r) + 1, colour);
        CHECK(of_replica.back() == colour);
        in_machine[worker.device().substr(0, worker.device().rfind('/'))].insert(r);
      }
    }
    CHECK(Apart(of_replica.back(), "#dddddd") > kApart);
  }
  for (int m = 0; m < cluster.machines_size(); ++m) {
    std::set<int> here = in_machine[cluster.machines(m).name()];
    if (m > 0) here.merge(std::set<int>(in_machine[cluster.machines(m - 1).name()]));
    for (const int a : here) {
      for (const int b : here) {
        INFO("replicas " << a << " and " << b << " at " << cluster.machines(m).name());
        if (a < b)
          CHECK(Apart(of_replica[static_cast<size_t>(a)], of_replica[static_cast<size_t>(b)]) >
                kApart);
      }
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
  CheckColours(*planned, input.cluster, picture);
  // So few replicas all differ: those of the list below the cluster are compared across it.
  std::set<std::string> colours;
  for (const auto& [device, colour] : ColoursOf(picture)) colours.insert(colour);
  CHECK(static_cast<int>(colours.size()) >= planned->replicas_size());
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
  const std::string crowd = PlanPicture(*crowded, *graph);
  CheckReadable(crowd);
  CheckColours(*crowded, input.cluster, crowd);
}

TEST_CASE("one site of 40 machines and 80 replicas fits a screen, and neighbours differ") {
  std::string cluster = "machines:\n", replicas = "replicas:\n";
  for (int m = 0; m < 40; ++m) {
    const std::string name = "m" + std::to_string(m);
    cluster += "- {name: " + name + ", devices: [{kind: A40, count: 4}]}\n";
    for (const char* devices : {"/0..1", "/2..3"})
      replicas += "- {stages: [{devices: [" + name + devices + "], layers: 32}]}\n";
  }
  cluster += "tiers: {site: {bandwidth: 25 Gbit/s, latency: 50 us}}\n";
  const PlannerInput input = tests::WrittenInput(cluster, "Llama-3-8B", kWorkload);
  v1::WrittenLayout layout;
  REQUIRE(ReadDocument(replicas, "layout.yaml", &layout).message() == "");
  PlannerOptions options;
  options.simulate = false;
  options.given_search = GivenLayout(layout, "layout.yaml");
  const auto plan = MakePlan(input, options);
  REQUIRE(plan.status().message() == "");
  REQUIRE(plan->replicas_size() == 80);
  const auto graph = MakeClusterGraph(input.cluster, input.catalogue, "cluster.yaml");
  REQUIRE(graph.ok());
  const std::string picture = PlanPicture(*plan, *graph);
  CheckReadable(picture);
  CheckColours(*plan, input.cluster, picture);
}

TEST_CASE("a picture shows every machine, device, stage and loaded link, and is well formed") {
  const PlannerInput input = tests::WrittenInput(R"(
machines:
- {name: "a<1>", site: x, devices: [{kind: A100-40, count: 4}]}
- {name: b, site: x, devices: [{kind: A100-40, count: 4}]}
- {name: c, site: y, devices: [{kind: L4, count: 3}]}
tiers: {site: {bandwidth: 25 Gbit/s, latency: 50 us}, region: {bandwidth: 1 Gbit/s, latency: 5 ms}}
)",
                                                 "Qwen2.5-14B", kWorkload);
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
  // Tensor-parallel siblings share a frame.
  CHECK(Times(picture, ">r0 P s0, TP 2<") == 1);
  CHECK(Times(picture, ">r1 D s0, TP 2<") == 1);
  CHECK(Times(picture, ">r1 D s1<") == 1);
  CHECK(Times(picture, ">24-47<") == 1);
  CHECK(plan->links_size() == 2);  // KV there, activations back, on one line
  CHECK(Times(picture, "marker-end=") == 1);
  CHECK(Times(picture, "marker-start=") == 1);
  CHECK(Times(picture, "<circle") == 1);
  CHECK_THAT(picture, Contains("; back ") && Contains("; 50 us one way") && Contains("TTFT ") &&
                          Contains(", TPOT "));
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

TEST_CASE("of 12 machines in three sites the links between two sites are one line") {
  std::string machines = "machines:\n", replicas = "replicas:\n";
  for (int m = 0; m < 4; ++m) {
    for (const char* site : {"x", "y", "z"}) {
      machines += "- {name: " + std::string(site) + std::to_string(m) + ", site: " + site +
                  ", devices: [{kind: A40, count: 4}]}\n";
    }
    const std::string n = std::to_string(m);
    // Every second device, so that siblings are not neighbours by number.
    replicas += "- {stages: [{devices: [x" + n + "/0, x" + n + "/2], layers: 40}, {devices: [y" +
                n + "/0..1], layers: 40}]}\n- {stages: [{devices: [y" + n +
                "/2..3], layers: 40}, {devices: [z" + n + "/0..1], layers: 40}]}\n";
  }
  machines +=
      "tiers: {site: {bandwidth: 25 Gbit/s, latency: 50 us}, region: {bandwidth: 1 Gbit/s, "
      "latency: 5 ms}}\n";
  const PlannerInput input = tests::WrittenInput(machines, "Llama-2-70B", kWorkload);
  v1::WrittenLayout layout;
  REQUIRE(ReadDocument(replicas, "layout.yaml", &layout).message() == "");
  PlannerOptions options;
  options.simulate = false;
  options.given_search = GivenLayout(layout, "layout.yaml");
  const auto plan = MakePlan(input, options);
  REQUIRE(plan.status().message() == "");
  const auto graph = MakeClusterGraph(input.cluster, input.catalogue, "cluster.yaml");
  REQUIRE(graph.ok());
  REQUIRE(plan->links_size() == 8);
  const std::vector<LinkBundle> bundles = LinkBundles(*plan, *graph);
  REQUIRE(bundles.size() == 2);
  for (const LinkBundle& bundle : bundles) {
    CHECK(bundle.sites);
    CHECK(bundle.there.size() + bundle.back.size() == 4);
    CHECK(bundle.latency_seconds == Approx(5e-3));
    double busiest = 0;
    for (const v1::LinkLoad& link : plan->links()) {
      const bool of_it =
          link.from().substr(0, 1) == bundle.from || link.from().substr(0, 1) == bundle.to;
      if (of_it && (link.to().substr(0, 1) == bundle.to || link.to().substr(0, 1) == bundle.from))
        busiest = std::max(busiest, LoadOf(link));
    }
    CHECK(bundle.load() == busiest);
    CHECK_THAT(BundleText(bundle), Catch::StartsWith("site ") &&
                                       Catch::Contains("4 links there, 0 back, the busiest ") &&
                                       Catch::EndsWith("; 5 ms one way"));
  }
  const std::string picture = PlanPicture(*plan, *graph);
  CheckReadable(picture);
  CheckColours(*plan, input.cluster, picture);
  CHECK(Times(picture, "<circle") == 2);
  CHECK(Times(picture, "<title>") == 48);
  CHECK(Times(picture, " s0, TP 2<") + Times(picture, " s1, TP 2<") == 16);
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
