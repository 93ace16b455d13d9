// The API keys of the coordinator, and whose they are.
// Thread rule: immutable.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/api_keys.h"

namespace tessera::coordinator {

class KeyRing {
 public:
  // No keys: none is asked for.
  KeyRing() = default;
  explicit KeyRing(std::vector<ApiKey> keys);

  bool open() const { return keys_.empty(); }
  // The client who sends this header Authorization: its name, or key-1, key-2, ... for keys without
  // one; "" where no key is asked for. Nullopt: the key is missing or wrong. The time that it takes
  // does not tell how a wrong key differs.
  std::optional<std::string> ClientOf(std::string_view authorization) const;
  // Whether the client's key may use a model that has these names; a key may use all models unless
  // it says which.
  bool Allows(std::string_view client, std::span<const std::string> names) const;
  // All of them, named, with their terms.
  const std::vector<ApiKey>& keys() const { return keys_; }

 private:
  std::vector<ApiKey> keys_;
};

}  // namespace tessera::coordinator
