// Real processes under a clock of our own: what ends is started again, and the others run on.
#include "deploy/processes/supervisor.h"

#include <signal.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "tests/temporary_folder.h"

namespace tessera::deploy {
namespace {

struct Supervised {
  tests::TemporaryFolder folder;
  double now = 1000;
  Supervisor programs{folder.path().string(), [this] { return now; }};

  // A program that notes each start of its own in NAME.starts and then does what `script` says.
  void Launch(const std::string& name, const std::string& script) {
    REQUIRE(programs.Launch(name, Arguments(name, script)).ok());
  }
  std::vector<std::string> Arguments(const std::string& name, const std::string& script) const {
    return {"/bin/sh", "-c",
            "echo x >> " + (folder.path() / (name + ".starts")).string() + "; " + script};
  }
  // The starts that were noted, which may take a moment.
  bool Starts(const std::string& name, int count) const {
    for (int i = 0; i < 3000; ++i) {
      std::ifstream file(folder.path() / (name + ".starts"));
      int lines = 0;
      for (std::string line; std::getline(file, line);) ++lines;
      if (lines >= count) return lines == count;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }
  // Revives until the program is seen to have ended.
  void AwaitEnd(size_t program) {
    for (int i = 0; i < 3000 && programs.running(program); ++i) {
      programs.Revive();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    REQUIRE_FALSE(programs.running(program));
  }
  // Seconds until it is started again.
  double PauseOf(size_t program) {
    const double begin = now;
    while (!programs.running(program) && now - begin < 100) {
      now += 0.25;
      programs.Revive();
    }
    REQUIRE(programs.running(program));
    return now - begin;
  }
};

}  // namespace

TEST_CASE("a program that dies again and again is tried on with growing pauses; the rest runs on") {
  Supervised all;
  all.Launch("coordinator", "sleep 1000");
  all.Launch("worker-0", "exit 3");
  double last = 0;
  for (int end = 1; end <= 12; ++end) {
    all.AwaitEnd(1);
    CHECK(all.programs.failing(1) == (end >= RestartPolicy::kMaxEndsAtOnce));
    CHECK_THAT(std::string(all.programs.last_end(1).message()),
               Catch::Contains("worker-0 exited with code 3"));
    const double pause = all.PauseOf(1);
    CHECK(pause >= last);
    CHECK(pause <= RestartPolicy::kMaxDelaySeconds);
    last = pause;
    REQUIRE(all.Starts("worker-0", end + 1));
  }
  CHECK(last == RestartPolicy::kMaxDelaySeconds);
  CHECK(all.programs.running(0));
  CHECK(all.programs.last_end(0).ok());
  CHECK(all.Starts("coordinator", 1));
}

TEST_CASE("any program is started again, as its arguments are by then") {
  Supervised all;
  all.Launch("coordinator", "sleep 1000");
  CHECK(all.programs.Check(0).ok());
  all.programs.SetArguments(0, all.Arguments("again", "sleep 1000"));
  all.now += 100;
  all.programs.Signal(0, SIGKILL);
  all.AwaitEnd(0);
  CHECK_FALSE(all.programs.Check(0).ok());
  CHECK(all.PauseOf(0) < 1);
  CHECK(all.Starts("again", 1));
  CHECK(all.programs.Check(0).ok());
  CHECK(all.programs.lived_seconds(0) == 0);
  CHECK_FALSE(all.programs.failing(0));
}

TEST_CASE("a program that is not there at first is an error, one that vanishes is tried on") {
  Supervised all;
  CHECK_FALSE(all.programs.Launch("none", {"/nowhere/none"}).ok());
  CHECK(all.programs.size() == 0);
  all.Launch("worker-0", "exit 0");
  all.programs.SetArguments(0, {"/nowhere/none"});
  for (int end = 0; end < 3; ++end) {
    all.AwaitEnd(0);
    all.now += 50;
    all.programs.Revive();
    CHECK_FALSE(all.programs.running(0));
  }
  CHECK_THAT(std::string(all.programs.last_end(0).message()), Catch::Contains("/nowhere/none"));
  all.programs.SetArguments(0, all.Arguments("back", "sleep 1000"));
  all.now += 50;
  all.programs.Revive();
  CHECK(all.Starts("back", 1));
}

}  // namespace tessera::deploy
