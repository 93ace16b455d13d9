#include "scheduler/simulator/transfers.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace tessera::scheduler {
namespace {

// Streams of a request have numbers in one integer with the request's.
constexpr int64_t kMaxStreams = 1 << 16;

}  // namespace

Transfers::Transfers(const TransferSetup& setup, size_t replicas)
    : setup_(setup), replicas_(replicas), network_(setup.links) {}

Transfers::Transfer& Transfers::Of(int32_t request, int prefill, int decode, int64_t tokens) {
  const auto [found, is_new] = transfers_.try_emplace(request);
  Transfer& transfer = found->second;
  if (!is_new) return transfer;
  // Replicas that were added later have no links described: their KV takes no time.
  const size_t pair = static_cast<size_t>(prefill) * replicas_ + static_cast<size_t>(decode);
  const bool described = static_cast<size_t>(prefill) < replicas_ &&
                         static_cast<size_t>(decode) < replicas_ && pair < setup_.routes.size();
  transfer.route = described ? &setup_.routes[pair] : &no_streams_;
  for (const KvStream& stream : *transfer.route) {
    const double bytes = stream.bytes_per_token * static_cast<double>(tokens);
    transfer.streams.push_back({bytes, stream.bytes_per_prompt, 0, false});
  }
  return transfer;
}

void Transfers::PrefillStarted(int32_t request, int prefill, int decode, int64_t tokens,
                               double start, double end) {
  Drop(request, start);
  Transfer& transfer = Of(request, prefill, decode, tokens);
  if (setup_.layers <= 1) return;
  transfer.push_seconds = start + (end - start) / setup_.layers;
  pushes_.emplace(transfer.push_seconds, request);
}

void Transfers::Push(int32_t request, double now) {
  Transfer& transfer = transfers_.at(request);
  transfer.push_seconds = -1;
  for (size_t i = 0; i < transfer.streams.size(); ++i) {
    Stream& stream = transfer.streams[i];
    stream.pushed = true;
    Send(request, i, stream.bytes * (1 - 1.0 / setup_.layers), now);
  }
}

void Transfers::Send(int32_t request, size_t stream, double bytes, double now) {
  Transfer& transfer = transfers_.at(request);
  transfer.streams[stream].flow =
      network_.Start((*transfer.route)[stream].links, bytes,
                     request * kMaxStreams + static_cast<int64_t>(stream), now);
}

void Transfers::PrefillEnded(int32_t request, int prefill, int decode, int64_t tokens, double now) {
  Transfer& transfer = Of(request, prefill, decode, tokens);
  pushes_.erase({std::exchange(transfer.push_seconds, -1), request});
  transfer.ended = true;
  for (size_t i = 0; i < transfer.streams.size(); ++i) {
    const Stream& stream = transfer.streams[i];
    const double bytes =
        stream.state_bytes + (stream.pushed ? stream.bytes / setup_.layers : stream.bytes);
    if (stream.flow > 0) {
      network_.Extend(stream.flow, bytes, now);
    } else {
      Send(request, i, bytes, now);
    }
  }
  ArriveIfThrough(request, now);
}

void Transfers::ArriveIfThrough(int32_t request, double now) {
  const Transfer& transfer = transfers_.at(request);
  double latency = 0;
  for (size_t i = 0; i < transfer.streams.size(); ++i) {
    if (transfer.streams[i].flow > 0) return;
    latency = std::max(latency, (*transfer.route)[i].latency_seconds);
  }
  if (transfer.ended) arrivals_.emplace(now + latency, request);
}

void Transfers::Drop(int32_t request, double now) {
  const auto found = transfers_.find(request);
  if (found == transfers_.end()) return;
  for (const Stream& stream : found->second.streams) {
    if (stream.flow > 0) network_.Drop(stream.flow, now);
  }
  pushes_.erase({found->second.push_seconds, request});
  transfers_.erase(found);
  std::erase_if(arrivals_, [&](const auto& event) { return event.second == request; });
}

double Transfers::next_event_seconds() {
  double next = network_.next_finish_seconds();
  if (!pushes_.empty()) next = std::min(next, pushes_.begin()->first);
  if (!arrivals_.empty()) next = std::min(next, arrivals_.begin()->first);
  return next;
}

std::vector<int32_t> Transfers::Arrived(double now) {
  while (!pushes_.empty() && pushes_.begin()->first <= now) {
    const int32_t request = pushes_.begin()->second;
    pushes_.erase(pushes_.begin());
    Push(request, now);
  }
  while (network_.next_finish_seconds() <= now) {
    for (const int64_t done : network_.Finished(now)) {
      const auto request = static_cast<int32_t>(done / kMaxStreams);
      transfers_.at(request).streams[static_cast<size_t>(done % kMaxStreams)].flow = 0;
      ArriveIfThrough(request, now);
    }
  }
  std::vector<int32_t> arrived;
  while (!arrivals_.empty() && arrivals_.begin()->first <= now) {
    arrived.push_back(arrivals_.begin()->second);
    transfers_.erase(arrived.back());
    arrivals_.erase(arrivals_.begin());
  }
  return arrived;
}

std::vector<int32_t> Transfers::Underway() const {
  std::vector<int32_t> requests;
  for (const auto& [request, transfer] : transfers_) {
    if (transfer.ended) requests.push_back(request);
  }
  return requests;
}

}  // namespace tessera::scheduler
