#include <catch2/catch.hpp>
#include <string>

#include "tests/coordinator/door.h"
#include "tests/logged_lines.h"

namespace tessera::coordinator {

TEST_CASE("an ignored field is logged once at debug, however often it comes") {
  REQUIRE(SetUpLogging("debug", "text").ok());
  const tests::LoggedLines lines("coordinator");
  {
    Door door;
    for (int i = 0; i < 3; ++i)
      door.Ask("/v1/completions", {{"prompt", "x"}, {"id_slot", i}, {"user", "u"}});
    door.Ask("/v1/completions", {{"prompt", "x"}, {"cache_prompt", true}});
  }
  CHECK(lines.Count("field id_slot is ignored") == 1);
  CHECK(lines.Count("field cache_prompt is ignored") == 1);
  CHECK(lines.Count("is ignored") == 2);
  REQUIRE(SetUpLogging("info", "text").ok());
}

}  // namespace tessera::coordinator
