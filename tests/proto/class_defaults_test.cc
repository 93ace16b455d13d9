// The configuration that transformers saves for each class, key by key: one that is left out means
// what transformers assumes for it, and one that says something else is never passed over.
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "proto/file_text.h"
#include "proto/json_reader.h"
#include "proto/model/model_config.h"
#include "third_party/absl/str_cat.h"

namespace tessera {
namespace {

using nlohmann::json;

json ReadConfigs() {
  const std::string file = "tests/golden/configs/class_defaults.json";
  const auto text = ReadFileText(file, kMaxJsonBytes);
  REQUIRE(text.ok());
  const auto document = ParseJsonObject(*text, file);
  REQUIRE(document.ok());
  return document->at("configs");
}

// "" where the configuration is refused, or a key of it is noted as passed over.
std::string Read(const json& config) {
  std::vector<std::string> notes;
  const auto model = ParseModelConfig(config.dump(), "config.json", &notes);
  return model.ok() && notes.empty() ? model->SerializeAsString() : "";
}

// Visits the members of the configuration, and of the text part inside of it, which may be changed.
void ForEachKey(json& config,
                const std::function<void(json& object, const std::string& key)>& visit) {
  std::vector<std::string> keys;
  for (const auto& [key, unused] : config.items()) keys.push_back(key);
  for (const std::string& key : keys) visit(config, key);
  if (config.contains("text_config")) ForEachKey(config["text_config"], visit);
}

// Other values of the same kind.
std::vector<json> OthersThan(const json& value) {
  if (value.is_boolean()) return {!value.get<bool>()};
  if (value.is_number_integer()) {
    const auto number = value.get<int64_t>();
    return {number + 1, 2 * number + 2, number / 2};
  }
  if (value.is_number()) return {value.get<double>() * 0.75 + 0.01};
  if (value.is_string()) return {value.get<std::string>() + "x"};
  if (value.is_null()) return {true, 3, 0.5, "x", json::array({1}), json::array({"x"})};
  if (value.is_array() && !value.empty()) {
    json shorter = value;
    shorter.erase(shorter.size() - 1);
    json turned = value;
    std::reverse(turned.begin(), turned.end());
    return {shorter, turned};
  }
  if (!value.is_object()) return {};
  std::vector<json> others;
  for (const auto& [key, member] : value.items()) {
    for (const json& other : OthersThan(member)) {
      others.push_back(value);
      others.back()[key] = other;
    }
  }
  return others;
}

}  // namespace

TEST_CASE("a key that is left out means what transformers assumes for it") {
  std::string wrong;
  for (const auto& [name, published] : ReadConfigs().items()) {
    json config = published;
    const std::string whole = Read(config);
    REQUIRE(!whole.empty());
    ForEachKey(config, [&](json& object, const std::string& key) {
      if (key == "architectures" || key == "text_config") return;
      const json kept = object[key];
      object.erase(key);
      const std::string without = Read(config);
      if (!without.empty() && without != whole) wrong += StrCat("\n", name, ": ", key);
      object[key] = kept;
    });
  }
  CHECK(wrong == "");
}

TEST_CASE("no key that a class has is passed over when it says something else") {
  std::string wrong;
  for (const auto& [name, published] : ReadConfigs().items()) {
    json config = published;
    const std::string whole = Read(config);
    ForEachKey(config, [&](json& object, const std::string& key) {
      if (key == "architectures" || key == "text_config") return;
      const json kept = object[key];
      for (const json& other : OthersThan(kept)) {
        object[key] = other;
        if (Read(config) != whole || other == kept) continue;
        wrong += StrCat("\n", name, ": ", key, " = ", other.dump().substr(0, 60));
      }
      object[key] = kept;
    });
  }
  CHECK(wrong == "");
}

}  // namespace tessera
