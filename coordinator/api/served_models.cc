#include "coordinator/api/served_models.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tessera::coordinator {

std::vector<std::string> ServedEntry::names() const {
  std::vector<std::string> names = {model->name};
  names.insert(names.end(), model->other_names.begin(), model->other_names.end());
  return names;
}

std::vector<const ServedEntry*> ServedModels::AllowedTo(const KeyRing& keys,
                                                        std::string_view client) const {
  std::vector<const ServedEntry*> allowed;
  for (const ServedEntry& door : doors_) {
    if (keys.Allows(client, door.names())) allowed.push_back(&door);
  }
  return allowed;
}

absl::StatusOr<const ServedEntry*> ServedModels::Pick(std::string_view asked, const KeyRing& keys,
                                                      std::string_view client) const {
  const std::vector<const ServedEntry*> allowed = AllowedTo(keys, client);
  std::vector<std::string> all;
  for (const ServedEntry* door : allowed) {
    const std::vector<std::string> names = door->names();
    if (asked.empty() ? allowed.size() == 1 : std::ranges::count(names, asked) > 0) return door;
    all.insert(all.end(), names.begin(), names.end());
  }
  if (!asked.empty() || allowed.empty()) return ModelNotServed(asked, all);
  return FieldError("model", absl::StrCat("model is missing, and several are served: name one of '",
                                          absl::StrJoin(all, "', '"), "'"));
}

absl::Status CheckModelNames(std::span<const ServedEntry> doors, const KeyRing& keys) {
  std::set<std::string> names;
  for (const ServedEntry& door : doors) {
    for (const std::string& name : door.names()) {
      if (names.insert(name).second) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("two models are called ", name, ": name one with --model NAME=FOLDER"));
    }
  }
  std::map<std::string, std::vector<std::string>> models_of;  // keys are looked up by name
  for (const ApiKey& key : keys.keys()) {
    const auto [same, is_new] = models_of.emplace(key.name, key.models);
    if (!is_new && same->second != key.models) {
      return absl::InvalidArgumentError(
          absl::StrCat("two API keys are called ", key.name,
                       " and have different models=: give one of them another name="));
    }
    for (const std::string& name : key.models) {
      if (names.contains(name)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("the API key ", key.name, " has models=", name,
                       ", which is not served; served: ", absl::StrJoin(names, ", ")));
    }
  }
  return absl::OkStatus();
}

}  // namespace tessera::coordinator
