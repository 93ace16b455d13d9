#include "worker/formation/link_probe.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/links/frame.h"
#include "third_party/absl/str_cat.h"

namespace tessera::worker {
namespace {

using Clock = std::chrono::steady_clock;

// Its payload begins with the bytes that the echo is asked for, as int64 of this machine's order.
constexpr uint16_t kProbeFrame = kernels::kFirstOwnerFrame;
constexpr uint16_t kEchoFrame = kernels::kFirstOwnerFrame + 1;

constexpr int64_t kSmallBytes = 4 << 10;
constexpr int64_t kFirstBytes = 64 << 10;
constexpr int64_t kLargestBytes = 4 << 20;
constexpr int kMaxRoundTrips = 200;
constexpr double kLatencySeconds = 0.25;
constexpr double kDirectionSeconds = 0.3;
constexpr double kQuickSeconds = 0.05;  // of a frame: the next one may be twice as large

double Seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<int64_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

class Probe {
 public:
  Probe(kernels::Link& link, double seconds)
      : link_(link),
        end_(Clock::now() +
             std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))),
        memory_(kLargestBytes) {}

  // Seconds from the first byte sent to the last one back.
  absl::StatusOr<double> Exchange(int64_t up_bytes, int64_t down_bytes) {
    std::memcpy(memory_.data(), &down_bytes, sizeof(down_bytes));
    const auto begin = Clock::now();
    absl::Status sent = link_.Send(
        kProbeFrame, absl::MakeConstSpan(memory_).first(static_cast<size_t>(up_bytes)), Left());
    if (!sent.ok()) return Named(sent);
    const auto echoed = link_.Receive(kEchoFrame, absl::MakeSpan(memory_), Left());
    if (!echoed.ok()) return Named(echoed.status());
    if (*echoed != down_bytes) {
      return absl::FailedPreconditionError(
          StrCat(link_.peer(), " echoed ", *echoed, " bytes instead of ", down_bytes));
    }
    return std::max(Seconds(Clock::now() - begin), 1e-9);
  }

  absl::StatusOr<double> RoundTripSeconds() {
    std::vector<double> trips;
    // The first one finds caches and threads cold.
    if (auto first = Exchange(kSmallBytes, kSmallBytes); !first.ok()) return first;
    const auto begin = Clock::now();
    while (trips.size() < kMaxRoundTrips &&
           (trips.empty() || Seconds(Clock::now() - begin) < kLatencySeconds)) {
      const auto trip = Exchange(kSmallBytes, kSmallBytes);
      if (!trip.ok()) return trip;
      trips.push_back(*trip);
    }
    return Median(std::move(trips));
  }

  absl::StatusOr<double> BytesPerSecond(bool up, double round_trip_seconds) {
    int64_t bytes = kFirstBytes;
    std::vector<double> times;  // of frames of `bytes`
    const auto begin = Clock::now();
    while (times.empty() || Seconds(Clock::now() - begin) < kDirectionSeconds) {
      const auto time = up ? Exchange(bytes, kSmallBytes) : Exchange(kSmallBytes, bytes);
      if (!time.ok()) return time;
      // Without the round trip, which has 4 KiB each way.
      const double moved = std::max(*time - round_trip_seconds, *time / 100);
      const bool more = Seconds(Clock::now() - begin) + 4 * *time < kDirectionSeconds;
      if (*time < kQuickSeconds && more && bytes < kLargestBytes) {
        bytes *= 2;
        times.clear();
      } else {
        times.push_back(moved);
      }
    }
    return static_cast<double>(bytes - kSmallBytes) / Median(std::move(times));
  }

 private:
  double Left() const { return std::max(Seconds(end_ - Clock::now()), 0.0); }

  absl::Status Named(const absl::Status& status) const {
    if (!absl::IsDeadlineExceeded(status)) return status;
    return absl::DeadlineExceededError(
        StrCat(link_.peer(),
               " did not echo in time: its process is stopped or overloaded, or the network is "
               "slower than 1 Mbit/s"));
  }

  kernels::Link& link_;
  const Clock::time_point end_;
  std::vector<std::byte> memory_;
};

}  // namespace

absl::StatusOr<LinkRates> MeasureLink(kernels::Link& link, double seconds) {
  Probe probe(link, seconds);
  const auto trip = probe.RoundTripSeconds();
  if (!trip.ok()) return trip.status();
  const auto sent = probe.BytesPerSecond(true, *trip);
  if (!sent.ok()) return sent.status();
  const auto received = probe.BytesPerSecond(false, *trip);
  if (!received.ok()) return received.status();
  return LinkRates{.latency_seconds = *trip / 2,
                   .sent_bytes_per_second = *sent,
                   .received_bytes_per_second = *received};
}

absl::Status EchoProbe(kernels::Link& link, double seconds) {
  std::vector<std::byte> memory(kLargestBytes);
  const auto begin = Clock::now();
  while (true) {
    const auto left = [&] { return std::max(seconds - Seconds(Clock::now() - begin), 0.0); };
    const auto received = link.Receive(kProbeFrame, absl::MakeSpan(memory), left());
    if (absl::IsUnavailable(received.status())) return absl::OkStatus();
    if (!received.ok()) return received.status();
    int64_t wanted = 0;
    if (*received >= static_cast<int64_t>(sizeof(wanted))) {
      std::memcpy(&wanted, memory.data(), sizeof(wanted));
    }
    if (wanted < 1 || wanted > kLargestBytes) {
      return absl::InvalidArgumentError(
          StrCat(link.peer(), " asked for an echo of ", wanted, " bytes; 1 to ", kLargestBytes));
    }
    absl::Status sent = link.Send(
        kEchoFrame, absl::MakeConstSpan(memory).first(static_cast<size_t>(wanted)), left());
    if (!sent.ok()) return sent;
  }
}

}  // namespace tessera::worker
