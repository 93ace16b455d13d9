// The devices and models that are known by name, compiled in from deploy/devices and deploy/models.
//
// Thread rule: pure functions. Each call reads the embedded document again; keep the result.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/cluster.pb.h"
#include "proto/model.pb.h"

namespace tessera::scheduler {

absl::StatusOr<v1::DeviceCatalogue> BuiltInDevices();
absl::StatusOr<v1::ModelCatalogue> BuiltInModels();

// NotFound, listing what there is.
absl::StatusOr<v1::Model> BuiltInModel(std::string_view name);

// By name or alias, capitals and dashes aside; null if there is none.
const v1::DeviceKind* FindKind(const v1::DeviceCatalogue& catalogue, std::string_view name);

// A kind's name without what does not count: capitals, dashes, blanks.
std::string PlainKindName(std::string_view name);

// NVIDIA's number of the oldest architecture that workers have kernels for.
inline constexpr double kMinNvidiaCapability = 7.5;

// Whether workers run on such devices. A kind that says nothing of it counts as one of these.
bool HasWorker(const v1::DeviceKind& kind);

}  // namespace tessera::scheduler
