// Published configurations are read without a false refusal.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "proto/file_text.h"
#include "proto/json_reader.h"
#include "proto/model/families/families.h"
#include "proto/model/model_config.h"

namespace tessera {
namespace {

using Catch::Matchers::Contains;
using nlohmann::json;

json ReadConfigs(const std::string& file) {
  const auto text = ReadFileText("tests/golden/configs/" + file, kMaxJsonBytes);
  REQUIRE(text.ok());
  const auto document = ParseJsonObject(*text, file);
  REQUIRE(document.ok());
  return *document;
}

// Reads all of them, and counts those of which a key is noted that nobody reads.
size_t CountNoted(const json& configs) {
  size_t noted = 0;
  for (const auto& [name, config] : configs.items()) {
    std::vector<std::string> notes;
    const auto model = ParseModelConfig(config.dump(), name, &notes);
    CHECK(model.status().message() == "");
    noted += notes.size();
  }
  return noted;
}

}  // namespace

TEST_CASE("no published configuration is refused, and few have keys that nobody reads") {
  const json document = ReadConfigs("public.json");
  const json& configs = document.at("configs");
  CHECK(configs.size() >= 40);
  CHECK(document.at("fine_tunes").size() >= 7);
  for (const auto& name : document.at("fine_tunes")) CHECK(configs.contains(name));
  CHECK(CountNoted(configs) <= configs.size() / 4);
}

TEST_CASE("configurations of 2025 and 2026 are read, or refused by what stands in the way") {
  const json document = ReadConfigs("recent.json");
  CHECK(document.at("configs").size() >= 20);
  CountNoted(document.at("configs"));
  for (const auto& [name, refused] : document.at("refused").items()) {
    const auto model = ParseModelConfig(refused.at("config").dump(), name);
    CHECK_THAT(std::string(model.status().message()), Contains(refused.at("names")));
  }
}

TEST_CASE("each class's own configuration is read as transformers saves it, every key of it") {
  const json document = ReadConfigs("class_defaults.json");
  const json& configs = document.at("configs");
  for (const Family* family : Families()) {
    INFO(family->architecture);
    CHECK(configs.contains(family->architecture));
  }
  CHECK(CountNoted(configs) == 0);
}

}  // namespace tessera
