#include "third_party/cli11/misspelt.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>
#include <vector>

#include "third_party/cli11/flag_file.h"
#include "third_party/cli11/number_check.h"

namespace tessera {
namespace {

using Catch::Matchers::Contains;

struct Sample {
  Sample() {
    program.RequireSubcommands(1, 1);
    const Command up = program.AddSubcommand("up", "");
    up.AddOption("model", text, "");
    up.AddOption("--workers", text, "");
    up.AddUnboundSwitch("--prefix,!--no-prefix");
    program.AddSubcommand("status", "").AddOption("--coordinator", text, "");
    const Command plan = program.AddSubcommand("plan", "");
    plan.AddOption("cluster", text, "");
    plan.AddOption("--goal", text, "");
    plan.AddSubcommand("check", "").AddOption("file", text, "");
  }
  std::string Unknown(const std::vector<const char*>& arguments) {
    return UnknownArgument(program, arguments);
  }
  Program program{"", "program"};
  std::string text;
};

TEST_CASE("a misspelt flag or subcommand is named, with the one that was meant") {
  Sample sample;
  CHECK_THAT(sample.Unknown({"up", "--wrokers", "1"}),
             Contains("--wrokers is no flag of program up") && Contains("mean --workers?"));
  CHECK_THAT(sample.Unknown({"up", "--wrokers=1"}), Contains("--wrokers is"));
  CHECK_THAT(sample.Unknown({"statsu"}), Contains("\"statsu\" is no subcommand") &&
                                             Contains("mean status?") && Contains("up, status"));
  CHECK_THAT(
      sample.Unknown({"plan", "chekc", "plan.json"}),
      Contains("\"chekc\" is no file, and no subcommand of program plan (did you mean check?)"));
  CHECK_THAT(sample.Unknown({"status", "--workers"}), Contains("--workers is no flag"));
  CHECK(sample.Unknown({"up", "--coordinator"}).find("mean") == std::string::npos);
}

TEST_CASE("what is known, or stands behind two dashes, is not named") {
  Sample sample;
  CHECK(sample.Unknown({"up", "folder", "--workers=1", "--no-prefix", "--help"}) == "");
  CHECK(sample.Unknown({"status"}) == "");
  CHECK(sample.Unknown({"plan", "cluster.yaml", "--goal", "chekc"}) == "");
  CHECK(sample.Unknown({"plan", "--goal", "chekc", "chekc"}) == "");  // who knows
  CHECK(sample.Unknown({"up", "--", "--wrokers"}) == "");
  CHECK(sample.Unknown({}) == "");
}

TEST_CASE("of the environment, only variables that no flag has are named") {
  Sample sample;
  const std::vector<const char*> arguments = {"up"};
  const std::vector<Command> commands = NamedCommands(sample.program, arguments);
  REQUIRE(commands.size() == 2);
  for (const Command& command : commands) NameEnvironment(command);
  setenv("TESSERA_WORKERS", "1", 1);
  setenv("TESSERA_WROKERS", "1", 1);
  setenv("TESSERA_GRPC_PORT", "1", 1);
  const std::string_view others[] = {"grpc-port"};
  const auto lines = UnknownVariables(commands, others);
  CHECK(UnknownVariables(commands, {}).size() == 2);
  unsetenv("TESSERA_WORKERS");
  unsetenv("TESSERA_WROKERS");
  unsetenv("TESSERA_GRPC_PORT");
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines[0], Contains("TESSERA_WROKERS") && Contains("mean TESSERA_WORKERS?"));
}

TEST_CASE("numbers are refused in words that fit a line") {
  for (const auto& [check, wrong] : std::vector<std::pair<NumberCheck, std::vector<std::string>>>{
           {NonNegative(), {"abc", "-1", "", "1x", "nan", "inf"}},
           {Positive(), {"0", "abc", "-1"}},
           {WholeFrom(1), {"0", "1.5", "1e3", "", "99999999999999999999"}},
           {Between(0.01, 1), {"0", "1.1", "abc"}}}) {
    CHECK(check.error("1") == "");
    for (const std::string& text : wrong) {
      INFO(text);
      const std::string error = check.error(text);
      CHECK_THAT(error, Contains("number"));
      CHECK(error.size() < 60);
    }
  }
}

}  // namespace
}  // namespace tessera
