#include "third_party/cli11/misspelt.h"

#include <CLI/CLI.hpp>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>
#include <vector>

#include "third_party/cli11/flag_file.h"
#include "third_party/cli11/number_check.h"

namespace tessera {
namespace {

using Catch::Matchers::Contains;

struct Program {
  Program() {
    app.require_subcommand(1);
    CLI::App* up = app.add_subcommand("up");
    up->add_option("model", text);
    up->add_option("--workers", text);
    up->add_flag("--prefix,!--no-prefix");
    app.add_subcommand("status")->add_option("--coordinator", text);
    CLI::App* plan = app.add_subcommand("plan");
    plan->add_option("cluster", text);
    plan->add_option("--goal", text);
    plan->add_subcommand("check")->add_option("file", text);
  }
  std::string Unknown(const std::vector<const char*>& arguments) {
    return UnknownArgument(app, arguments);
  }
  CLI::App app{"", "program"};
  std::string text;
};

TEST_CASE("a misspelt flag or subcommand is named, with the one that was meant") {
  Program program;
  CHECK_THAT(program.Unknown({"up", "--wrokers", "1"}),
             Contains("--wrokers is no flag of program up") && Contains("mean --workers?"));
  CHECK_THAT(program.Unknown({"up", "--wrokers=1"}), Contains("--wrokers is"));
  CHECK_THAT(program.Unknown({"statsu"}), Contains("\"statsu\" is no subcommand") &&
                                              Contains("mean status?") && Contains("up, status"));
  CHECK_THAT(
      program.Unknown({"plan", "chekc", "plan.json"}),
      Contains("\"chekc\" is no file, and no subcommand of program plan (did you mean check?)"));
  CHECK_THAT(program.Unknown({"status", "--workers"}), Contains("--workers is no flag"));
  CHECK(program.Unknown({"up", "--coordinator"}).find("mean") == std::string::npos);
}

TEST_CASE("what is known, or stands behind two dashes, is not named") {
  Program program;
  CHECK(program.Unknown({"up", "folder", "--workers=1", "--no-prefix", "--help"}) == "");
  CHECK(program.Unknown({"status"}) == "");
  CHECK(program.Unknown({"plan", "cluster.yaml", "--goal", "chekc"}) == "");
  CHECK(program.Unknown({"plan", "--goal", "chekc", "chekc"}) == "");  // who knows
  CHECK(program.Unknown({"up", "--", "--wrokers"}) == "");
  CHECK(program.Unknown({}) == "");
}

TEST_CASE("of the environment, only variables that no flag has are named") {
  Program program;
  const std::vector<const char*> arguments = {"up"};
  const std::vector<CLI::App*> apps = NamedApps(program.app, arguments);
  REQUIRE(apps.size() == 2);
  for (CLI::App* app : apps) NameEnvironment(*app);
  setenv("TESSERA_WORKERS", "1", 1);
  setenv("TESSERA_WROKERS", "1", 1);
  setenv("TESSERA_GRPC_PORT", "1", 1);
  const std::string_view others[] = {"grpc-port"};
  const auto lines = UnknownVariables(apps, others);
  CHECK(UnknownVariables(apps, {}).size() == 2);
  unsetenv("TESSERA_WORKERS");
  unsetenv("TESSERA_WROKERS");
  unsetenv("TESSERA_GRPC_PORT");
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines[0], Contains("TESSERA_WROKERS") && Contains("mean TESSERA_WORKERS?"));
}

TEST_CASE("numbers are refused in words that fit a line") {
  for (const auto& [validator, wrong] :
       std::vector<std::pair<CLI::Validator, std::vector<std::string>>>{
           {NonNegative(), {"abc", "-1", "", "1x", "nan", "inf"}},
           {Positive(), {"0", "abc", "-1"}},
           {WholeFrom(1), {"0", "1.5", "1e3", "", "99999999999999999999"}},
           {Between(0.01, 1), {"0", "1.1", "abc"}}}) {
    std::string right = "1";
    CHECK(validator(right) == "");
    for (std::string text : wrong) {
      INFO(text);
      const std::string error = validator(text);
      CHECK_THAT(error, Contains("number"));
      CHECK(error.size() < 60);
    }
  }
}

}  // namespace
}  // namespace tessera
