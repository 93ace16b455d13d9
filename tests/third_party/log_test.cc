#include "third_party/spdlog/log.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace tessera {
namespace {

// Sends file descriptor 2 to a file while it lives.
class CapturedStderr {
 public:
  CapturedStderr() : saved_(dup(2)), path_(std::string(std::getenv("TEST_TMPDIR")) + "/stderr") {
    REQUIRE(std::freopen(path_.c_str(), "w", stderr) != nullptr);
  }
  ~CapturedStderr() { Restore(); }

  std::string Text() {
    Restore();
    std::stringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }

 private:
  void Restore() {
    if (saved_ < 0) return;
    std::fflush(stderr);
    dup2(saved_, 2);
    close(saved_);
    saved_ = -1;
  }

  int saved_;
  std::string path_;
};

TEST_CASE("a json log line survives quotes, line ends and broken UTF-8") {
  const std::string line = JsonLogLine("t", "info", "worker", "say \"hi\"\nand \xff");
  CHECK(line.find('\n') == std::string::npos);
  const auto parsed = nlohmann::json::parse(line);
  CHECK(parsed["message"] == "say \"hi\"\nand \xef\xbf\xbd");
  CHECK(parsed["logger"] == "worker");
}

TEST_CASE("level and format hold for loggers made before and after") {
  CapturedStderr captured;
  FolderLog& before = Logger("before");
  REQUIRE(SetUpLogging("warning", "json").ok());
  before.info("hidden");
  before.warn("shown {}", 1);
  Logger("after").error("shown {}", 2);
  std::istringstream lines(captured.Text());
  std::string line;
  REQUIRE(std::getline(lines, line));
  const auto first = nlohmann::json::parse(line);
  CHECK(first["message"] == "shown 1");
  CHECK(first["level"] == "warning");
  CHECK(first["time"].get<std::string>().size() == std::string("2024-01-01T00:00:00.000Z").size());
  REQUIRE(std::getline(lines, line));
  CHECK(nlohmann::json::parse(line)["logger"] == "after");
  CHECK_FALSE(std::getline(lines, line));
}

TEST_CASE("text lines name the logger") {
  CapturedStderr captured;
  REQUIRE(SetUpLogging("info", "text").ok());
  Logger("worker").info("ready");
  const std::string text = captured.Text();
  CHECK(text.find("Z info worker: ready\n") != std::string::npos);
}

class Lines : public LogObserver {
 public:
  void OnLine(std::string_view message) override { all.emplace_back(message); }
  std::vector<std::string> all;
};

TEST_CASE("arguments of every kind stand where their fields are") {
  CapturedStderr captured;
  REQUIRE(SetUpLogging("info", "text").ok());
  Lines lines;
  FolderLog& log = Logger("kinds");
  log.AddObserver(&lines);
  const std::string text = "c";
  log.info("{} {} {}{}{} {} {}", int8_t{-1}, uint64_t{18446744073709551615u}, "a",
           std::string_view("b"), text, true, 30.0);
  log.warn("{:.2f} of {}", 1.005, 0.1);
  log.error("nothing");
  log.info("{}", "{} {");
  log.debug("hidden");
  log.RemoveObserver(&lines);
  log.info("gone");
  CHECK(lines.all == std::vector<std::string>{"-1 18446744073709551615 abc true 30", "1.00 of 0.1",
                                              "nothing", "{} {"});
}

TEST_CASE("an unknown level or format is refused by name") {
  CHECK(SetUpLogging("loud", "text").message().find("\"loud\"") != std::string_view::npos);
  CHECK(SetUpLogging("info", "xml").message().find("\"xml\"") != std::string_view::npos);
}

TEST_CASE("one folder has one logger") { CHECK(&Logger("same") == &Logger("same")); }

}  // namespace
}  // namespace tessera
