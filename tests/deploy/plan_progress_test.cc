// Searches of up to two seconds say nothing; longer ones say how far they are.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>

#include "deploy/search_interrupt.h"
#include "proto/file_text.h"
#include "tests/temporary_folder.h"

namespace tessera::deploy {
namespace {

// What reaches the terminal meanwhile.
std::string Printed(const std::function<void()>& run) {
  const tests::TemporaryFolder folder;
  const std::string path = (folder.path() / "stderr").string();
  std::fflush(stderr);
  const int terminal = dup(STDERR_FILENO);
  REQUIRE(std::freopen(path.c_str(), "w", stderr) != nullptr);
  run();
  std::fflush(stderr);
  dup2(terminal, STDERR_FILENO);
  close(terminal);
  return *ReadFileText(path, 1 << 20);
}

TEST_CASE("progress is told from two seconds on, a few times a second") {
  SearchInterrupt watch(0);
  const scheduler::SearchWatch search = watch.ForSearch();
  CHECK(Printed([&] { search.Report("10 of 1000 layouts"); }) == "");
  std::this_thread::sleep_for(std::chrono::milliseconds(2050));
  const std::string told = Printed([&] {
    for (int i = 0; i < 100; ++i) search.Report("700 of 1000 layouts");
  });
  CHECK_THAT(told, Catch::StartsWith("planning, ") && Catch::Contains(" s: 700 of 1000 layouts\n"));
  CHECK(told.size() < 200);  // not a line for each
}

}  // namespace
}  // namespace tessera::deploy
