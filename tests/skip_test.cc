#include <catch2/catch.hpp>
#include <cstdlib>

#include "tests/catch_skip.h"

TEST_CASE("a skip ends the test case") {
  // With this variable the case shows its own skip; without it, that what follows does run.
  if (std::getenv("TESSERA_SHOW_SKIP") != nullptr) {
    TESSERA_SKIP("asked to show a skip");
    std::abort();
  }
  CHECK(std::getenv("TESSERA_SHOW_SKIP") == nullptr);
}
