// What is read from the model's folder at start: the front doors' ServedModel, and what every
// worker learns about it. Thread rule: called once, from main.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "coordinator/api/front_door.h"
#include "coordinator/coordinator_options.h"
#include "proto/worker.pb.h"

namespace tessera::coordinator {

struct LoadedModel {
  std::shared_ptr<ServedModel> served;
  v1::ConfigureRequest configure;  // but for what differs between workers
  std::string speculation;         // whose drafts steps try, in words; empty: nobody's
};

// Errors name file, key and reason.
absl::StatusOr<LoadedModel> LoadModel(const CoordinatorOptions& options, int64_t now_unix_seconds);

}  // namespace tessera::coordinator
