// tessera simulate with other plans taking over, other cost tables, and agentic workflows.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>

#include "deploy/plan_command.h"
#include "deploy/plan_file.h"
#include "deploy/simulate_command.h"
#include "proto/file_text.h"

namespace tessera::deploy {
namespace {

constexpr char kCluster[] = "deploy/clusters/workstations.yaml";

std::string Scratch(const std::string& name) {
  const char* folder = std::getenv("TEST_TMPDIR");
  return std::string(folder == nullptr ? "/tmp" : folder) + "/" + name;
}

// Llama-3-8B on one replica per device list.
std::string PlanFile(const std::string& name, const std::vector<std::string>& devices) {
  PlanFlags plan;
  plan.cluster = kCluster;
  plan.model = "Llama-3-8B";
  plan.layout = Scratch(name + ".yaml");
  std::string layout = "replicas:\n";
  for (const std::string& list : devices)
    layout += "- stages:\n  - {devices: [" + list + "], layers: 32}\n";
  std::ofstream(plan.layout) << layout;
  const auto made = PlanFromFiles(plan);
  INFO(made.status());
  REQUIRE(made.ok());
  const std::string path = Scratch(name + ".json");
  std::ofstream(path) << *PlanJson(*made);
  return path;
}

SimulateFlags Flags() {
  SimulateFlags flags;
  flags.plan = PlanFile("plan", {"a/0..3", "b/0..1"});
  flags.cluster = kCluster;
  flags.requests = 300;
  flags.requests_per_second = 2;
  return flags;
}

std::string Summary(const SimulateFlags& flags) {
  const auto summary = SimulateFromFiles(flags);
  INFO(summary.status());
  REQUIRE(summary.ok());
  CHECK(*SimulateFromFiles(flags) == *summary);
  return *summary;
}

bool Has(const std::string& text, const std::string& part) {
  INFO(text);
  const bool has = text.find(part) != std::string::npos;
  CHECK(has);
  return has;
}

std::string Refusal(const SimulateFlags& flags) {
  return std::string(SimulateFromFiles(flags).status().message());
}

}  // namespace

TEST_CASE("a plan that takes over is of the devices that the cluster has") {
  SimulateFlags flags = Flags();
  auto next = ReadPlanFile(PlanFile("next", {"a/0..3", "c/0..1"}));
  REQUIRE(next.status().message() == "");
  next->mutable_replicas(1)->mutable_stages(0)->mutable_workers(0)->set_kind("H100-SXM");
  const std::string path = Scratch("relabelled.json");
  std::ofstream(path) << *PlanJson(*next);
  flags.replans = {path + " at 40 s"};
  Has(Refusal(flags), "at 40 s\": replica r1: device c/0 is a A4000, the plan says H100-SXM");
}

TEST_CASE("another plan takes over at its time; what stays serves on") {
  SimulateFlags flags = Flags();
  const std::string next = PlanFile("next", {"a/0..3", "c/0..1"});
  flags.replans = {next + " at 40 s"};
  flags.csv = Scratch("replanned.csv");
  const std::string summary = Summary(flags);
  Has(summary, "300 finished, 0 failed");
  // 15 GiB of weights by two workers of one machine, 2 GB/s.
  Has(summary, "re-planning at 40 s to " + next + ": 1 of 2 replicas stay");
  Has(summary, "weights are read at 2 GB/s per machine");
  const auto csv = ReadFileText(flags.csv, 1 << 20);
  REQUIRE(csv.ok());
  CHECK(csv->find(",r1',") != std::string::npos);
  // A slower disk: the new replica comes later.
  const auto served = [&](const SimulateFlags& f) {
    Summary(f);
    const std::string text = *ReadFileText(f.csv, 1 << 20);
    int64_t count = 0;
    for (size_t at = text.find(",r1',"); at != std::string::npos; at = text.find(",r1',", at + 1))
      ++count;
    return count;
  };
  SimulateFlags slow = flags;
  slow.weight_read = "200 MB/s";
  CHECK(served(slow) < served(flags));
}

TEST_CASE("re-planning follows a loss, with a plan from a file or one made then") {
  SimulateFlags flags = Flags();
  flags.changes = {"r1 lost 30 s"};
  const std::string next = PlanFile("next", {"a/0..3", "c/0..1"});
  flags.replans = {next + " after r1 lost 10 s"};
  Has(Summary(flags), "re-planning at 40 s to " + next);
  // More than one pipeline sustains with room to spare.
  flags.requests_per_second = 8;
  flags.requests = 1200;
  flags.replans = {"new after r1 lost 10 s"};
  const std::string planned = Summary(flags);
  Has(planned, "re-planning at 40 s to a plan made at that time");
  Has(planned, " c/0");
  flags.replans.push_back(next + " at 41 s");
  CHECK(Refusal(flags).find("is still being loaded") != std::string::npos);
}

TEST_CASE("a re-planning that cannot be read is refused") {
  SimulateFlags flags = Flags();
  for (const char* wrong : {"nowhere.json at 5 s", "new", "new at noon", "new after r1 lost 5 s",
                            "new after r1 back 5 s"}) {
    flags.replans = {wrong};
    INFO(wrong);
    CHECK(Refusal(flags).find("--replan: \"" + std::string(wrong) + "\": ") == 0);
  }
  flags.replans = {PlanFile("next", {"a/0..3", "c/0..1"}) + " at 40 s"};
  flags.changes = {"r1 back 60 s"};
  CHECK(Refusal(flags) ==
        "--change: \"r1 back 60 s\": a --replan drops it at 40 s: choose an earlier time");
  flags.replans = {};
  CHECK(Refusal(flags) ==
        "--change: \"r1 back 60 s\": r1 is not lost at that time: give an earlier --change \"r1 "
        "lost ...\"");
  flags.changes = {"r1 lost 5 s", "r1 lost 60 s"};
  CHECK(Refusal(flags).find("--change: \"r1 lost 60 s\": r1 is lost already") == 0);
  flags.replans = {PlanFile("next", {"a/0..3", "c/0..1"}) + " at 40 s"};
  flags.changes = {};
  flags.routing = "shares";
  CHECK(Refusal(flags).find("--routing: ") == 0);
  flags.routing = "";
  flags.weight_read = "0 GB/s";
  CHECK(Refusal(flags).find("--weight-read: ") == 0);
}

TEST_CASE("a plan made after a loss needs machines that are left, and says so") {
  SimulateFlags flags = Flags();
  flags.plan = PlanFile("plan", {"a/0..3", "b/0..1", "c/0..1"});
  flags.changes = {"r0 lost 5 s", "r1 lost 5 s", "r2 lost 6 s"};
  flags.replans = {"new after r2 lost 5 s"};
  CHECK(Refusal(flags) ==
        "--replan: \"new after r2 lost 5 s\": with r0, r1, r2 lost, and their machines "
        "(a, b, c), no machine is left to plan for; write the file of a plan in place of \"new\", "
        "or describe more machines in --cluster");
}

TEST_CASE("fitted latencies stand in for the cost model") {
  SimulateFlags flags = Flags();
  const std::string model = Summary(flags);
  flags.cost_table = "distserve:13B-TP1";
  const std::string fitted = Summary(flags);
  Has(fitted, "fitted for OPT-13B-TP1 on A100-80");
  flags.cost_table = "distserve:66B-TP4";
  CHECK(fitted != Summary(flags));
  flags.cost_table = "distserve";
  CHECK(Refusal(flags) ==
        "--cost-table: \"distserve\" is neither \"model\" nor \"distserve:FIT\": there is no fit "
        "called \"\"; there are 13B-TP1, 13B-TP2, 66B-TP4, 66B-TP8");
}

TEST_CASE("workflows are generated, tuned, and shown beside round-robin") {
  SimulateFlags flags = Flags();
  flags.requests = 0;
  flags.requests_per_second = 0;
  flags.workflows = "generated";
  flags.workflows_csv = Scratch("workflows.csv");
  const std::string summary = Summary(flags);
  Has(summary, "500 workflows, ");
  Has(summary, " % of capacity");
  flags.requests_per_second = 0.5;  // workflows per second
  Has(Summary(flags), " calls, at 0.500 workflows per second (0.");
  flags.requests_per_second = 0;
  Has(summary, "deadlines met       p50       p95");
  Has(summary, "alpha = 0.1, 0.3, 0.5, 0.7, 0.9 (--alphas)");
  Has(summary, "their calls:");
  const auto csv = ReadFileText(flags.workflows_csv, 1 << 20);
  REQUIRE(csv.ok());
  CHECK(csv->starts_with("# simulated with the cost model; ESTIMATED, not measured: "));
  CHECK(std::count(csv->begin(), csv->end(), '\n') == 502);
  flags.alphas = {0.4};
  Has(Summary(flags), "alpha = 0.4 (--alphas)");
  flags.routing = "round-robin";
  CHECK(Summary(flags).find("tuned") == std::string::npos);
  flags.routing = "load";
  CHECK(Refusal(flags).find("--routing: \"load\"") == 0);
}

TEST_CASE("workflows come from a file") {
  SimulateFlags flags = Flags();
  flags.requests_per_second = 0;
  flags.workflows = Scratch("workflows.yaml");
  std::ofstream(flags.workflows)
      << "workflows:\n"
         "- {arrival: 0 s, deadline: 60 s, stages: [{calls: [{prompt_tokens: 900, output_tokens: "
         "20}]}]}\n"
         "- arrival: 2 s\n"
         "  deadline: 1 ms\n"
         "  stages:\n"
         "  - calls: [{prompt_tokens: 500, output_tokens: 9}, {prompt_tokens: 50, output_tokens: "
         "9}]\n"
         "  - calls: [{prompt_tokens: 700, output_tokens: 9}]\n";
  const std::string summary = Summary(flags);
  Has(summary, "2 workflows, 4 calls, at 0.500 workflows per second");
  Has(summary, "  tuned                         50.0 %");
  std::ofstream(flags.workflows) << "workflows: [{arrival: 1 s, deadline: 3 s}]\n";
  CHECK(Refusal(flags) == flags.workflows +
                              ": workflows[0]: stages are missing: give it at least one with a "
                              "call");
  std::ofstream(flags.workflows) << "generator: {workflows: 40, most_calls: 2}\n";
  CHECK(Refusal(flags).find("fewest_calls must be at least 1 and at most most_calls") !=
        std::string::npos);
  std::ofstream(flags.workflows) << "generator: {workflows: 40, most_calls: 4}\n";
  flags.requests = 0;
  Has(Summary(flags), "40 workflows, ");
}

}  // namespace tessera::deploy
