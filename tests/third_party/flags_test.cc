#include "third_party/cli11/flags.h"

#include <catch2/catch.hpp>
#include <string>

namespace tessera {
namespace {

TEST_CASE("a subcommand may have a --name beside a positional name of the command above it") {
  Program program("", "program");
  std::string cluster, checked_cluster, model, checked_model;
  const Command plan = program.AddSubcommand("plan", "");
  plan.AddOption("cluster", cluster, "");
  plan.AddOption("--model", model, "");
  const Command check = plan.AddSubcommand("check", "");
  check.AddOption("--cluster", checked_cluster, "");
  check.AddOption("model", checked_model, "");
  SECTION("which the subcommand reads") {
    const auto parsed = program.Parse({"plan", "check", "a model", "--cluster", "a.yaml"});
    REQUIRE(parsed.ok());
    CHECK(checked_cluster == "a.yaml");
    CHECK(checked_model == "a model");
    CHECK(cluster.empty());
  }
  SECTION("and the command above reads its own") {
    REQUIRE(program.Parse({"plan", "b.yaml", "--model", "m"}).ok());
    CHECK(cluster == "b.yaml");
    CHECK(model == "m");
    CHECK(checked_cluster.empty());
  }
}

}  // namespace
}  // namespace tessera
