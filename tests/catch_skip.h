// TESSERA_SKIP("reason") ends a TEST_CASE that cannot run here (no GPU, say) and counts it as
// skipped.
//
// Catch2 v2 has no skip of its own. The macro returns from the enclosing function, so it belongs in
// the body of the TEST_CASE itself, before its first CHECK. The reason appears on the console and
// in test.xml, and tests/run adds the skips to its last line. Single-threaded, as Catch2 is.
#pragma once

#include <string_view>

namespace tessera::tests {

// Marks the running test case as skipped; the listener of catch_main.cc reads it when the case
// ends.
void MarkSkipped(std::string_view reason);

}  // namespace tessera::tests

#define TESSERA_SKIP(reason)               \
  do {                                     \
    ::tessera::tests::MarkSkipped(reason); \
    return;                                \
  } while (false)
