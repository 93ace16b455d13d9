#include "coordinator/api/key_ring.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/protocol.h"

namespace tessera::coordinator {

KeyRing::KeyRing(std::vector<ApiKey> keys) : keys_(std::move(keys)) {
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (keys_[i].name.empty()) keys_[i].name = absl::StrCat("key-", i + 1);
  }
}

std::optional<std::string> KeyRing::ClientOf(std::string_view authorization) const {
  if (open()) return "";
  std::optional<std::string> client;
  for (const ApiKey& key : keys_) {
    if (BearerFits(authorization, {&key.key, 1})) client = key.name;
  }
  return client;
}

bool KeyRing::Allows(std::string_view client, std::span<const std::string> names) const {
  for (const ApiKey& key : keys_) {
    if (key.name != client || key.models.empty()) continue;
    return std::ranges::find_first_of(key.models, names) != key.models.end();
  }
  return true;
}

}  // namespace tessera::coordinator
