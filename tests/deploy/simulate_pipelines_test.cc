// Agentic workflows on plans whose pipelines pass links between machines.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <string>

#include "deploy/plan_command.h"
#include "deploy/plan_file.h"
#include "deploy/simulate_command.h"

namespace tessera::deploy {
namespace {

std::string Scratch(const std::string& name, const std::string& text) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
  std::ofstream(path) << text;
  return path;
}

// Two pipelines, each over two machines, joined by a network of so many Gbit/s.
SimulateFlags Pipelines(const std::string& gigabits) {
  PlanFlags plan;
  plan.cluster = Scratch("cluster-" + gigabits + ".yaml",
                         "machines:\n- {name: a, devices: [{kind: A6000, count: 2}]}\n"
                         "- {name: b, devices: [{kind: A5000, count: 2}]}\n"
                         "tiers: {site: {bandwidth: " +
                             gigabits + " Gbit/s, latency: 50 us}}\n");
  plan.model = "Llama-3-8B";
  plan.layout = Scratch("layout.yaml",
                        "replicas:\n"
                        "- stages: [{devices: [a/0], layers: 20}, {devices: [b/0], layers: 12}]\n"
                        "- stages: [{devices: [a/1], layers: 20}, {devices: [b/1], layers: 12}]\n");
  const auto made = PlanFromFiles(plan);
  REQUIRE(made.status().message() == "");
  SimulateFlags flags;
  flags.plan = Scratch("plan-" + gigabits + ".json", *PlanJson(*made));
  flags.cluster = plan.cluster;
  flags.workflows = "generated";
  flags.requests = 40;
  flags.requests_per_second = 0.05;
  return flags;
}

// Of the row, in seconds.
double Median(const std::string& summary, const std::string& row) {
  const size_t at = summary.find("  " + row + " ");
  REQUIRE(at != std::string::npos);
  const size_t percent = summary.find('%', at);
  return std::atof(summary.c_str() + percent + 1);
}

TEST_CASE("workflows run on pipelines, and wait for the links that they pass") {
  const auto quick = SimulateFromFiles(Pipelines("25"));
  REQUIRE(quick.status().message() == "");
  CHECK(quick->find("40 workflows, ") != std::string::npos);
  CHECK(quick->find("link a > b") != std::string::npos);
  const auto slow = SimulateFromFiles(Pipelines("0.2"));
  REQUIRE(slow.status().message() == "");
  for (const char* row : {"tuned", "round-robin"}) {
    INFO(*quick << *slow);
    CHECK(Median(*quick, row) > 0);
    CHECK(Median(*slow, row) > 1.5 * Median(*quick, row));
  }
}

}  // namespace
}  // namespace tessera::deploy
