#include "kernels/cuda/sums/peer_meeting.h"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>
#include <utility>

#include "third_party/absl/str_cat.h"

namespace tessera::kernels::cuda {
namespace {

constexpr int kMaxRanks = 16;
constexpr size_t kWhyBytes = 200;
constexpr std::chrono::microseconds kPause{200};
constexpr int kPausesBetweenLooks = 100;  // for processes that are gone

// Decisions: none yet, for the peers, and for the host by rank 0; by rank r r more.
constexpr uint32_t kOpen = 0, kForPeers = 1, kForHost = 2;

struct alignas(64) Seat {
  uint32_t step;
  PeerOffer offer;      // behind kOffered
  char why[kWhyBytes];  // that of the rank which decided for the host
};

struct Table {
  alignas(64) uint32_t decision;
  Seat seats[kMaxRanks];
};
static_assert(sizeof(Table) <= kPeerMeetingBytes);

Table& TableIn(std::byte* memory) { return *reinterpret_cast<Table*>(memory + kPeerMeetingOffset); }

// Sequentially consistent: whether others have left depends on the order of two ranks' words.
uint32_t Read(const uint32_t& word) {
  return std::atomic_ref<uint32_t>(const_cast<uint32_t&>(word)).load();
}

uint32_t Decide(uint32_t* decision, uint32_t wanted) {
  uint32_t found = kOpen;
  std::atomic_ref<uint32_t>(*decision).compare_exchange_strong(found, wanted);
  return found == kOpen ? wanted : found;
}

}  // namespace

PeerMeeting::PeerMeeting(int rank, int size, std::shared_ptr<std::byte> memory, double wait_seconds)
    : rank_(rank),
      size_(size),
      memory_(std::move(memory)),
      wait_seconds_(wait_seconds),
      deadline_(DeadlineAfter(wait_seconds)) {}

void PeerMeeting::Offer(const PeerOffer& offer) {
  TableIn(memory_.get()).seats[rank_].offer = offer;
  Take(PeerStep::kOffered);
}

const PeerOffer& PeerMeeting::offer(int rank) const {
  return TableIn(memory_.get()).seats[rank].offer;
}

void PeerMeeting::Take(PeerStep step) {
  std::atomic_ref<uint32_t>(TableIn(memory_.get()).seats[rank_].step)
      .store(static_cast<uint32_t>(step));
}

bool PeerMeeting::IsGone(int rank) const {
  const Seat& seat = TableIn(memory_.get()).seats[rank];
  if (Read(seat.step) == static_cast<uint32_t>(PeerStep::kAway)) return false;
  const PeerOffer& offer = seat.offer;
  return offer.process_namespace == ProcessNamespace() && offer.process_namespace != 0 &&
         kill(static_cast<pid_t>(offer.process), 0) != 0 && errno == ESRCH;
}

std::string PeerMeeting::Missing(PeerStep step) const {
  for (int rank = 0; rank < size_; ++rank) {
    const uint32_t taken = Read(TableIn(memory_.get()).seats[rank].step);
    if (taken >= static_cast<uint32_t>(step)) continue;
    const bool is_away = taken == static_cast<uint32_t>(PeerStep::kAway);
    return StrCat("rank ", rank, is_away ? " did not come" : " did not answer", " within ",
                  wait_seconds_, " s");
  }
  return "";
}

bool PeerMeeting::AwaitAll(PeerStep step) {
  for (int pauses = 1;; ++pauses) {
    // What is decided while all arrive is seen the next time, or by Agree.
    const bool late = SecondsLeft() <= 0;
    if (Read(TableIn(memory_.get()).decision) >= kForHost) return false;
    const std::string missing = Missing(step);
    if (missing.empty()) return true;
    if (late) Refuse(missing);
    for (int rank = 0; pauses % kPausesBetweenLooks == 0 && rank < size_; ++rank) {
      if (IsGone(rank)) Refuse(StrCat("the process of rank ", rank, " is gone"));
    }
    std::this_thread::sleep_for(kPause);
  }
}

void PeerMeeting::Refuse(const std::string& why) { KeepInHostMemory(memory_.get(), rank_, why); }

bool PeerMeeting::Agree() {
  return Decide(&TableIn(memory_.get()).decision, kForPeers) == kForPeers;
}

std::string PeerMeeting::WhyHost() const {
  const uint32_t decision = Read(TableIn(memory_.get()).decision);
  if (decision < kForHost) return "";
  const uint32_t rank = std::min<uint32_t>(decision - kForHost, kMaxRanks - 1);
  const char* const why = TableIn(memory_.get()).seats[rank].why;
  return StrCat("rank ", rank, ": ", std::string(why, strnlen(why, kWhyBytes)));
}

bool PeerMeeting::OthersLeft() const {
  const bool for_host = Read(TableIn(memory_.get()).decision) >= kForHost;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    const auto step = static_cast<PeerStep>(Read(TableIn(memory_.get()).seats[rank].step));
    const bool stays_away = for_host && step == PeerStep::kAway;
    if (step != PeerStep::kLeft && !stays_away && !IsGone(rank)) return false;
  }
  return true;
}

void KeepInHostMemory(std::byte* memory, int rank, const std::string& why) {
  Table& table = TableIn(memory);
  if (Read(table.decision) != kOpen) return;
  Seat& seat = table.seats[rank];
  const size_t length = std::min(why.size(), kWhyBytes - 1);
  std::memcpy(seat.why, why.data(), length);
  seat.why[length] = '\0';
  Decide(&table.decision, kForHost + static_cast<uint32_t>(rank));
}

uint64_t ProcessNamespace() {
  struct stat found = {};
  return stat("/proc/self/ns/pid", &found) == 0 ? static_cast<uint64_t>(found.st_ino) : 0;
}

}  // namespace tessera::kernels::cuda
