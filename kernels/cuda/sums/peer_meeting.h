// How the ranks of a group agree whether their devices meet in each other's memory, by words in the
// host memory that they share: all of them do, or none does.
//
// Each rank offers memory of its device, waits for all offers, takes access to the others' memory,
// waits until all have it, tries it, waits until all have tried it. One word decides, which the
// first compare-and-swap sets for good: for the peers by a rank that saw that all had tried it, for
// the host by one that could not, or that waited in vain. So no two ranks act on unlike answers,
// however late one of them is.
//
// Memory that a rank offered may be freed when all others have left it: what a rank that reads
// "for the host" behind its offer never takes, or the process of which is gone, counts as left.
// (The offer is stored before the decision is read, and the decision before the offers, in one
// order for all ranks.)
//
// Every wait is bounded: all together take `wait_seconds` from the start on. Blocks where it says
// so; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/links/deadline.h"

namespace tessera::kernels::cuda {

// In the memory that ranks share, zeros before the first one begins: whole pages.
inline constexpr int64_t kPeerMeetingOffset = 4096;
inline constexpr int64_t kPeerMeetingBytes = 2 * 4096;

// Memory of a rank's device, for the others.
struct PeerOffer {
  uint64_t process = 0, process_namespace = 0;
  uint64_t address = 0;      // in that process
  int32_t device_index = 0;  // there, too
  uint32_t has_handle = 0;   // for other processes
  char handle[64] = {};
};

enum class PeerStep : uint32_t {
  kAway,     // it has not come
  kOffered,  // and may take access to the others' memory
  kReaches,  // all others' memory
  kTried,    // sums in it
  kLeft,     // it reaches nobody's memory any more
};

class PeerMeeting {
 public:
  // `memory`: all that the ranks share; kept.
  PeerMeeting(int rank, int size, std::shared_ptr<std::byte> memory, double wait_seconds);

  int rank() const { return rank_; }
  int size() const { return size_; }
  double SecondsLeft() const { return SecondsUntil(deadline_); }

  // Takes the step to kOffered.
  void Offer(const PeerOffer& offer);
  // What a rank has offered that has come.
  const PeerOffer& offer(int rank) const;
  void Take(PeerStep step);
  // Blocks until all ranks are there. False: it is decided for the host.
  bool AwaitAll(PeerStep step);
  // For the host, unless it is decided.
  void Refuse(const std::string& why);
  // For the peers, unless it is decided; behind AwaitAll(kTried). Returns whether it is for them.
  bool Agree();
  // Why it is for the host; empty: it is for the peers, or not decided.
  std::string WhyHost() const;
  // Whether no other rank reaches what this one offered, nor will.
  bool OthersLeft() const;

 private:
  bool IsGone(int rank) const;
  std::string Missing(PeerStep step) const;

  const int rank_, size_;
  const std::shared_ptr<std::byte> memory_;
  const double wait_seconds_;
  const Deadline deadline_;
};

// Decides for the host in all ranks' stead, before they begin, or for a rank that cannot begin.
void KeepInHostMemory(std::byte* memory, int rank, const std::string& why);

// The namespace that gives this process its id; 0: it is not known.
uint64_t ProcessNamespace();

}  // namespace tessera::kernels::cuda
