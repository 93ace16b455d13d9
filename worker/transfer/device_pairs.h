// The pairs of this worker's device with those of other workers, through which KV goes from device
// to device (kernels/collectives/device_pair.h).
//
// A pair goes one way: two workers that send to each other have two, so that neither way waits for
// the other. Each is made when it is first needed and kept; one that failed is made again, and
// where devices did not join, they are left alone for a while. Connections that use one pair take
// turns, so that both ends make their calls in one order.
//
// Thread rule: any thread. Ownership: borrows the device's GroupMaker; pairs end before it does.
// Every wait is bounded.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/collectives/group_maker.h"

namespace tessera::worker {

// One end of a pair, shared by the connections that go through it.
class PairedDevice {
 public:
  PairedDevice(std::string id, std::unique_ptr<kernels::DevicePair> devices)
      : id_(std::move(id)), devices_(std::move(devices)) {}

  const std::string& id() const { return id_; }
  // Only for whoever has the turn.
  kernels::DevicePair& devices() { return *devices_; }
  bool usable() const { return devices_->usable(); }
  int64_t memory_bytes() const { return static_cast<int64_t>(devices_->memory().size()); }

  // DeadlineExceeded: others had it for all that time.
  absl::Status TakeTurn(double timeout_seconds);
  void GiveTurn();

 private:
  const std::string id_;
  const std::unique_ptr<kernels::DevicePair> devices_;
  std::mutex mutex_;
  std::condition_variable given_;
  bool taken_ = false;
};

struct DevicePairOptions {
  kernels::GroupMaker* maker = nullptr;  // of this worker's device; borrowed
  double join_seconds = 20;              // for both to be there
  double retry_seconds = 60;             // after they were not
};

class DevicePairs {
 public:
  static constexpr int64_t kMemoryBytes = int64_t{4} << 20;  // of the device, by pair
  // Each way; the one that was not used for longest goes.
  static constexpr size_t kMaxPairs = 16;
  enum class Way { kTo, kFrom };

  explicit DevicePairs(const DevicePairOptions& options) : options_(options) {}

  const DevicePairOptions& options() const { return options_; }
  kernels::GroupMaker& maker() const { return *options_.maker; }
  // Why nothing goes from another worker's device to this one; empty: it may.
  std::string WhyNotFrom(const std::string& device_id, const std::string& library) const;

  // What there is with a peer, while nobody else changes it.
  class Slot;
  // Waits for whoever changes it. DeadlineExceeded, or Cancelled.
  absl::StatusOr<Slot> TakeSlot(Way way, uint64_t peer_incarnation,
                                const std::function<bool()>& cancelled);

 private:
  using Clock = std::chrono::steady_clock;

  struct Entry {
    bool taken = false;
    std::shared_ptr<PairedDevice> device;
    Clock::time_point not_before;  // of the next try to join
    std::string why_not;           // with not_before
    uint64_t used = 0;             // the use of all that was its last
  };

  // Where there are too many of this way.
  void ForgetOldest(Way way);

  const DevicePairOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable given_;
  std::map<std::pair<Way, uint64_t>, Entry> entries_;  // by peer
  uint64_t uses_ = 0;
};

class DevicePairs::Slot {
 public:
  Slot(Slot&& other) noexcept
      : pairs_(std::exchange(other.pairs_, nullptr)), way_(other.way_), entry_(other.entry_) {}
  Slot& operator=(Slot&&) = delete;
  ~Slot();

  // Null: there is none, or it has failed.
  std::shared_ptr<PairedDevice> kept() const;
  // Why joining is not tried now; empty: it may be.
  std::string held_off() const;
  // Joins the peer's device, in place of the pair that there was. `cancelled` may end the wait.
  absl::StatusOr<std::shared_ptr<PairedDevice>> Join(const std::string& id,
                                                     const std::function<bool()>& cancelled);
  // Gives up the pair, and tries no other one for a while. Returns what held_off() says then.
  std::string HoldOff(const std::string& why);
  void Drop() { entry_->device.reset(); }

 private:
  friend class DevicePairs;
  Slot(DevicePairs* pairs, Way way, Entry* entry) : pairs_(pairs), way_(way), entry_(entry) {}

  DevicePairs* pairs_;
  const Way way_;
  Entry* const entry_;  // its own but for `taken` and `used`
};

}  // namespace tessera::worker
