// What the coordinator logs of its work every ten seconds. Thread rule: pure function.
#pragma once

#include <string>

#include "proto/coordinator.pb.h"

namespace tessera::coordinator {

// Rates, requests, and what the KV pools hold; empty where nothing runs.
std::string ActivityLine(const v1::GetClusterReply& cluster);

}  // namespace tessera::coordinator
