// The models behind the front doors, and which of them a request is for.
//
// Thread rule: immutable.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "coordinator/api/front_door.h"
#include "coordinator/api/key_ring.h"
#include "coordinator/flow/generation.h"

namespace tessera::coordinator {

// One served model, and what serves it. Both outlive the doors.
struct ServedEntry {
  std::shared_ptr<const ServedModel> model;
  GenerationService* service = nullptr;
  // Headers that say what is left of a client's limits; may not be set.
  std::function<std::vector<std::pair<std::string, std::string>>(const std::string& client)>
      limits = {};

  std::vector<std::string> names() const;
};

class ServedModels {
 public:
  ServedModels(std::shared_ptr<const ServedModel> model, GenerationService& service)
      : doors_{ServedEntry{std::move(model), &service}} {}
  // At least one.
  explicit ServedModels(std::vector<ServedEntry> doors) : doors_(std::move(doors)) {}

  const ServedEntry& first() const { return doors_.front(); }
  // Those that the client's key allows.
  std::vector<const ServedEntry*> AllowedTo(const KeyRing& keys, std::string_view client) const;
  // The one of that name, or for an empty name the only one. NOT_FOUND (model_not_found) naming
  // those that the client's key allows; INVALID_ARGUMENT for no name where there are several.
  absl::StatusOr<const ServedEntry*> Pick(std::string_view asked, const KeyRing& keys,
                                          std::string_view client) const;

 private:
  const std::vector<ServedEntry> doors_;
};

// INVALID_ARGUMENT naming a name that two models have, or that a key allows and no model has.
absl::Status CheckModelNames(std::span<const ServedEntry> doors, const KeyRing& keys);

}  // namespace tessera::coordinator
