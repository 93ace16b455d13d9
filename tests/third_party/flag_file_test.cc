#include "third_party/cli11/flag_file.h"

#include <CLI/CLI.hpp>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace tessera {
namespace {

using Catch::Matchers::Contains;

struct Program {
  // Parses `line`, then the file; the error's text, or "".
  std::string Run(const std::string& line, const std::string& yaml) {
    const std::string path =
        (std::filesystem::temp_directory_path() / "flag_file_test.yaml").string();
    std::ofstream(path) << yaml;
    CLI::App app;
    app.add_option("model", model);
    app.add_option("--port", port)->check(CLI::Range(0, 65535));
    app.add_option("--log-level", level);
    app.add_option("--api-key", keys);
    app.add_flag("--quiet", quiet);
    app.add_option("--config", config);
    NameEnvironment(app);
    app.parse(line);
    return std::string(ApplyFlagFile(path, app).message());
  }
  std::string model, level = "info", config;
  int port = 1;
  bool quiet = false;
  std::vector<std::string> keys;
};

TEST_CASE("command line before environment before file before default") {
  setenv("TESSERA_LOG_LEVEL", "from-environment", 1);
  Program program;
  CHECK(program.Run("--port 2",
                    "port: 3\nlog-level: from-file\nmodel: from-file\n"
                    "quiet: true\napi-key: [a, b]\n") == "");
  unsetenv("TESSERA_LOG_LEVEL");
  CHECK(program.port == 2);
  CHECK(program.level == "from-environment");
  CHECK(program.model == "from-file");
  CHECK(program.quiet);
  CHECK(program.keys == std::vector<std::string>{"a", "b"});
  Program defaults;
  CHECK(defaults.Run("", "{}") == "");
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
    const std::string error = Program().Run("", yaml);
    CHECK_THAT(error, Contains("flag_file_test.yaml") && Contains(part));
  }
  CLI::App app;
  CHECK_THAT(std::string(ApplyFlagFile("/no/such.yaml", app).message()), Contains("/no/such.yaml"));
}

}  // namespace
}  // namespace tessera
