#include "coordinator/client_policies.h"

namespace tessera::coordinator {

std::map<std::string, ClientPolicy> PoliciesOf(const KeyRing& keys) {
  std::map<std::string, ClientPolicy> policies;
  for (const ApiKey& key : keys.keys()) {
    policies[key.name] = {.weight = key.weight,
                          .limits = {.requests_per_minute = key.requests_per_minute,
                                     .tokens_per_minute = key.tokens_per_minute,
                                     .concurrent_requests = key.concurrent_requests}};
  }
  return policies;
}

}  // namespace tessera::coordinator
