// Published configurations are read without a false refusal.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "proto/file_text.h"
#include "proto/json_reader.h"
#include "proto/model/model_config.h"

namespace tessera {

TEST_CASE("no published configuration is refused, and few have keys that nobody reads") {
  const auto text = ReadFileText("tests/golden/configs/public.json", kMaxJsonBytes);
  REQUIRE(text.ok());
  const auto document = ParseJsonObject(*text, "public.json");
  REQUIRE(document.ok());
  const nlohmann::json& configs = document->at("configs");
  CHECK(configs.size() >= 40);
  CHECK(document->at("fine_tunes").size() >= 7);
  for (const auto& name : document->at("fine_tunes")) CHECK(configs.contains(name));
  size_t noted = 0;
  for (const auto& [name, config] : configs.items()) {
    std::vector<std::string> notes;
    const auto model = ParseModelConfig(config.dump(), name, &notes);
    CHECK(model.status().message() == "");
    noted += notes.size();
  }
  CHECK(noted <= configs.size() / 4);
}

}  // namespace tessera
