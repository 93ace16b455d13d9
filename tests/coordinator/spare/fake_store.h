// A LeaderStore in memory. Leases end by its own clock.
// Thread rule: thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "coordinator/spare/leader_store.h"

namespace tessera::coordinator {

class FakeStore final : public LeaderStore {
 public:
  absl::StatusOr<Lease> Grant(double seconds) override {
    const std::lock_guard lock(mutex_);
    if (down) return Down();
    const std::string id = std::to_string(++revision_);
    leases_[id] = {now + seconds, seconds};
    return Lease{id, seconds};
  }
  absl::StatusOr<bool> Renew(const std::string& lease) override {
    const std::lock_guard lock(mutex_);
    if (down) return Down();
    Expire();
    const auto found = leases_.find(lease);
    if (found == leases_.end()) return false;
    found->second.ends = now + found->second.seconds;
    return true;
  }
  absl::Status Revoke(const std::string& lease) override {
    const std::lock_guard lock(mutex_);
    if (down) return Down();
    leases_.erase(lease);
    Expire();
    return absl::OkStatus();
  }
  absl::StatusOr<std::map<std::string, StoredValue>> Read(const std::string& prefix) override {
    const std::lock_guard lock(mutex_);
    if (down) return Down();
    if (keeps_nothing && prefix.ends_with("kept/")) return Down();
    Expire();
    read_revision_ = revision_;
    std::map<std::string, StoredValue> found;
    for (const auto& [key, value] : values_) {
      if (key.starts_with(prefix)) found[key] = value;
    }
    return found;
  }
  uint64_t revision() const override { return read_revision_; }
  absl::StatusOr<uint64_t> Create(const std::string& key, const std::string& value,
                                  const std::string& lease) override {
    const std::lock_guard lock(mutex_);
    if (down) return Down();
    Expire();
    if (values_.contains(key) || !leases_.contains(lease)) return uint64_t{0};
    values_[key] = {value, ++revision_, lease};
    if (loses_answers) return Down();
    return revision_;
  }
  absl::StatusOr<bool> WriteWhile(const std::string& guard, uint64_t created,
                                  const std::string& key,
                                  const std::optional<std::string>& value) override {
    const std::lock_guard lock(mutex_);
    if (down) return Down();
    Expire();
    const auto found = values_.find(guard);
    if (found == values_.end() || found->second.created != created) return false;
    if (keeps_nothing) return Down();
    ++writes;
    values_.erase(key);
    if (value.has_value()) values_[key] = {*value, ++revision_, ""};
    return true;
  }

  // As a store that was started again without its data.
  void Forget() {
    const std::lock_guard lock(mutex_);
    leases_.clear();
    values_.clear();
    revision_ = 0;
  }

  // Ends the lease of whoever leads by `key`, and gives the lead to another one. Its term.
  uint64_t PassOn(const std::string& key, const std::string& value) {
    std::string lease;
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = values_.find(key); found != values_.end()) lease = found->second.lease;
    }
    if (!lease.empty()) (void)Revoke(lease);
    return *Create(key, value, Grant(kLongSeconds)->id);
  }

  std::atomic<bool> down = false, loses_answers = false;
  std::atomic<bool> keeps_nothing = false;  // neither reads nor writes what a leader keeps
  std::atomic<double> now = 0;
  std::atomic<int> writes = 0;

 private:
  struct Held {
    double ends = 0, seconds = 0;
  };
  static absl::Status Down() { return absl::UnavailableError("the store is down"); }
  void Expire() {
    std::erase_if(leases_, [&](const auto& entry) { return entry.second.ends <= now; });
    std::erase_if(values_, [&](const auto& entry) {
      return !entry.second.lease.empty() && !leases_.contains(entry.second.lease);
    });
  }

  static constexpr double kLongSeconds = 1e6;

  std::mutex mutex_;
  uint64_t revision_ = 0;
  std::atomic<uint64_t> read_revision_ = 0;
  std::map<std::string, Held> leases_;
  std::map<std::string, StoredValue> values_;
};

}  // namespace tessera::coordinator
