#include "worker/transfer/device_pairs.h"

#include "third_party/absl/str_cat.h"

namespace tessera::worker {
namespace {

// A wait for a slot is cut so that a cancel is noticed.
constexpr std::chrono::milliseconds kSlice(50);

}  // namespace

absl::Status PairedDevice::TakeTurn(double timeout_seconds) {
  std::unique_lock lock(mutex_);
  const bool given = given_.wait_for(lock, std::chrono::duration<double>(timeout_seconds),
                                     [this] { return !taken_; });
  if (!given) {
    return absl::DeadlineExceededError(
        StrCat("other KV kept the pair of devices busy for ", timeout_seconds, " s"));
  }
  taken_ = true;
  return absl::OkStatus();
}

void PairedDevice::GiveTurn() {
  {
    std::lock_guard lock(mutex_);
    taken_ = false;
  }
  given_.notify_one();
}

std::string DevicePairs::WhyNotFrom(const std::string& device_id,
                                    const std::string& library) const {
  if (device_id == maker().device_id()) return StrCat("both ends are on one GPU, ", device_id);
  if (library == maker().library()) return "";
  return StrCat("the sender has ", library, ", the receiver ", maker().library());
}

absl::StatusOr<DevicePairs::Slot> DevicePairs::TakeSlot(Way way, uint64_t peer_incarnation,
                                                        const std::function<bool()>& cancelled) {
  // Whoever has it joins the devices at most.
  const Clock::time_point deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(
                         std::chrono::duration<double>(2 * options_.join_seconds));
  std::unique_lock lock(mutex_);
  Entry* entry = &entries_[{way, peer_incarnation}];
  while (entry->taken) {
    if (cancelled()) return absl::CancelledError("the KV is not wanted any more");
    if (Clock::now() >= deadline)
      return absl::DeadlineExceededError("another connection still joins the devices");
    given_.wait_for(lock, kSlice);
    entry = &entries_[{way, peer_incarnation}];  // it may have been forgotten meanwhile
  }
  entry->taken = true;
  entry->used = ++uses_;
  return Slot(this, way, entry);
}

void DevicePairs::ForgetOldest(Way way) {
  std::shared_ptr<PairedDevice> forgotten;  // ends behind the lock
  std::lock_guard lock(mutex_);
  auto oldest = entries_.end();
  size_t count = 0;
  for (auto at = entries_.begin(); at != entries_.end(); ++at) {
    if (at->first.first != way) continue;
    ++count;
    if (at->second.taken) continue;
    if (oldest == entries_.end() || at->second.used < oldest->second.used) oldest = at;
  }
  if (count <= kMaxPairs || oldest == entries_.end()) return;
  forgotten = std::move(oldest->second.device);
  entries_.erase(oldest);
}

DevicePairs::Slot::~Slot() {
  if (pairs_ == nullptr) return;
  {
    std::lock_guard lock(pairs_->mutex_);
    entry_->taken = false;
  }
  pairs_->given_.notify_all();
  pairs_->ForgetOldest(way_);
}

std::shared_ptr<PairedDevice> DevicePairs::Slot::kept() const {
  return entry_->device != nullptr && entry_->device->usable() ? entry_->device : nullptr;
}

std::string DevicePairs::Slot::held_off() const {
  return Clock::now() < entry_->not_before ? entry_->why_not : "";
}

absl::StatusOr<std::shared_ptr<PairedDevice>> DevicePairs::Slot::Join(
    const std::string& id, const std::function<bool()>& cancelled) {
  Drop();
  auto joined = pairs_->maker().JoinPair(way_ == Way::kTo ? 0 : 1, id, kMemoryBytes,
                                         pairs_->options_.join_seconds, cancelled);
  if (!joined.ok()) return joined.status();
  return entry_->device = std::make_shared<PairedDevice>(id, *std::move(joined));
}

std::string DevicePairs::Slot::HoldOff(const std::string& why) {
  Drop();
  entry_->why_not = StrCat(why, "; tried again after ", pairs_->options_.retry_seconds, " s");
  entry_->not_before =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(
                         std::chrono::duration<double>(pairs_->options_.retry_seconds));
  return entry_->why_not;
}

}  // namespace tessera::worker
