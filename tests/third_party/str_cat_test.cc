#include "third_party/absl/str_cat.h"

#include <catch2/catch.hpp>

namespace tessera {
namespace {

TEST_CASE("StrCat joins every kind of string, numbers and chars") {
  const std::string_view standard = "view";
  const absl::string_view abseil = "absl";
  CHECK(StrCat("a ", std::string("b"), ' ', standard, " ", abseil, " ", 7, " ", -1.5) ==
        "a b view absl 7 -1.5");
  CHECK(StrCat() == "");
}

TEST_CASE("views convert without a copy") {
  const std::string text = "text";
  CHECK(AbslView(text).data() == text.data());
  CHECK(StdView(AbslView(text)) == text);
}

}  // namespace
}  // namespace tessera
