// What several coordinators need of the store that they share, to agree on who leads: leases, and
// writes that hold only while somebody leads. etcd_store.h has it; tests have one in memory.
//
// Thread rule: one thread at a time. Each call blocks for a bounded time; UNAVAILABLE where the
// store does not answer, and then nobody knows whether it was done.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tessera::coordinator {

struct Lease {
  std::string id;
  double seconds = 0;  // that it lives unless it is renewed: at least what was asked for
};

struct StoredValue {
  std::string value;
  uint64_t created = 0;  // revision of the store when the key came; later keys have higher ones
  std::string lease;     // with which the key ends; empty: it stays
};

class LeaderStore {
 public:
  virtual ~LeaderStore() = default;
  virtual absl::StatusOr<Lease> Grant(double seconds) = 0;
  // False: the lease has ended.
  virtual absl::StatusOr<bool> Renew(const std::string& lease) = 0;
  // Ends a lease, and the keys with it. OK where it has ended already.
  virtual absl::Status Revoke(const std::string& lease) = 0;
  // By key, all that begin with `prefix`.
  virtual absl::StatusOr<std::map<std::string, StoredValue>> Read(const std::string& prefix) = 0;
  // The store's, at its newest answer to Read. Below one before: it has lost what it had.
  virtual uint64_t revision() const = 0;
  // Writes a key that is not there. The revision at which it came; 0: it is there.
  virtual absl::StatusOr<uint64_t> Create(const std::string& key, const std::string& value,
                                          const std::string& lease) = 0;
  // Writes a key (nothing: removes it) if `guard` was created at `created`. False: it was not.
  virtual absl::StatusOr<bool> WriteWhile(const std::string& guard, uint64_t created,
                                          const std::string& key,
                                          const std::optional<std::string>& value) = 0;
};

}  // namespace tessera::coordinator
