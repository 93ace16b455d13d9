#include "third_party/cli11/flag_file.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace tessera {
namespace {

using Catch::Matchers::Contains;

struct Sample {
  // Parses `arguments`, then the file; the error's text, or "".
  std::string Run(const std::vector<std::string>& arguments, const std::string& yaml) {
    const std::string path =
        (std::filesystem::temp_directory_path() / "flag_file_test.yaml").string();
    std::ofstream(path) << yaml;
    Program program("", "sample");
    program.AddOption("model", model, "");
    program.AddOption("--port", port, "").Range(0, 65535);
    program.AddOption("--log-level", level, "");
    program.AddOption("--api-key", keys, "");
    program.AddSwitch("--quiet", quiet, "");
    program.AddOption("--config", config, "");
    NameEnvironment(program);
    REQUIRE(program.Parse(arguments).ok());
    return std::string(ApplyFlagFile(path, program).message());
  }
  std::string model, level = "info", config;
  int port = 1;
  bool quiet = false;
  std::vector<std::string> keys;
};

TEST_CASE("command line before environment before file before default") {
  setenv("TESSERA_LOG_LEVEL", "from-environment", 1);
  Sample sample;
  CHECK(sample.Run({"--port", "2"},
                   "port: 3\nlog-level: from-file\nmodel: from-file\n"
                   "quiet: true\napi-key: [a, b]\n") == "");
  unsetenv("TESSERA_LOG_LEVEL");
  CHECK(sample.port == 2);
  CHECK(sample.level == "from-environment");
  CHECK(sample.model == "from-file");
  CHECK(sample.quiet);
  CHECK(sample.keys == std::vector<std::string>{"a", "b"});
  Sample defaults;
  CHECK(defaults.Run({}, "{}") == "");
  CHECK(defaults.level == "info");
}

TEST_CASE("errors name the file and the key") {
  for (const auto& [yaml, part] : std::vector<std::pair<std::string, std::string>>{
           {"no-such-flag: 1", "no-such-flag is not a flag"},
           {"config: other.yaml", "config is not a flag"},
           {"help: true", "help is not a flag"},
           {"port: many", "port"},
           {"port: 70000", "port"},
           {"port: {a: 1}", "port"},
           {"- port", "key: value"},
           {"port: [", "flag_file_test.yaml"}}) {
    INFO(yaml);
    const std::string error = Sample().Run({}, yaml);
    CHECK_THAT(error, Contains("flag_file_test.yaml") && Contains(part));
  }
  Program program("", "sample");
  CHECK_THAT(std::string(ApplyFlagFile("/no/such.yaml", program).message()),
             Contains("/no/such.yaml: no such file"));
}

}  // namespace
}  // namespace tessera
