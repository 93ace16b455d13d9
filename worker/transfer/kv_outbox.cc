#include "worker/transfer/kv_outbox.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <system_error>
#include <utility>

#include "kernels/links/handshake.h"
#include "kernels/links/link_address.h"
#include "kernels/links/link_socket.h"
#include "proto/protocol.h"
#include "third_party/absl/str_cat.h"
#include "worker/transfer/kv_codec.h"
#include "worker/transfer/kv_inbox.h"

namespace tessera::worker {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kConnectSeconds = 5;

absl::Span<const std::byte> Bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

absl::Status Stopped() { return absl::CancelledError("the KV is not wanted any more"); }

}  // namespace

struct KvOutbox::Parcel {
  ParcelId id = 0;
  KvParcel order;
  // Of the thread that ships it.
  std::vector<std::byte> elements;
  std::unique_ptr<kernels::Link> link;
  int64_t timed_bytes = 0;  // of large pieces
  std::chrono::nanoseconds timed{0};

  // With mutex_ held.
  std::condition_variable changed;
  std::deque<Ready> ready;
  std::map<int32_t, int64_t> next;     // by layer: the first token that is not in `ready` yet
  kernels::Link* live_link = nullptr;  // to shut down
  bool stopped = false;
  bool reading = false;        // the pool
  bool reporting = false;      // `done` is being called
  int64_t missing_tokens = 0;  // layers times tokens that were not added
};

KvOutbox::KvOutbox(KvOutboxOptions options) : options_(std::move(options)) {
  threads_.emplace_back([this] { Run(); });
}

KvOutbox::~KvOutbox() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    for (const auto& [id, parcel] : parcels_) {
      if (parcel->live_link != nullptr) {
        parcel->live_link->Shutdown(absl::CancelledError("the worker is shutting down"));
      }
      parcel->changed.notify_all();
    }
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

KvOutbox::ParcelId KvOutbox::Open(KvParcel order) {
  auto parcel = std::make_shared<Parcel>();
  parcel->order = std::move(order);
  parcel->missing_tokens = int64_t{parcel->order.route.part().layers().end() -
                                   parcel->order.route.part().layers().begin()} *
                           (parcel->order.end - parcel->order.first);
  std::lock_guard lock(mutex_);
  parcel->id = ++last_id_;
  parcels_.emplace(parcel->id, parcel);
  waiting_.push_back(parcel);
  if (idle_threads_ < static_cast<int>(waiting_.size()) &&
      static_cast<int>(threads_.size()) < kMaxParcelsAtOnce) {
    try {
      threads_.emplace_back([this] { Run(); });
    } catch (const std::system_error&) {  // no more threads: those that there are take it in turn
    }
  }
  changed_.notify_one();
  return parcel->id;
}

void KvOutbox::Add(ParcelId id, int32_t layer, std::shared_ptr<const std::vector<int32_t>> table,
                   int64_t end) {
  std::lock_guard lock(mutex_);
  const auto found = parcels_.find(id);
  if (found == parcels_.end() || found->second->stopped) return;
  Parcel& parcel = *found->second;
  const KvParcel& order = parcel.order;
  int64_t& next = parcel.next.try_emplace(layer, order.first).first->second;
  const int64_t group = TokensPerGroup(order.codec);
  const int64_t whole = end == order.end ? end : end - (end - order.first) % group;
  if (whole <= next) return;
  parcel.ready.push_back({layer, std::move(table), next, whole});
  parcel.missing_tokens -= whole - next;
  next = whole;
  parcel.changed.notify_all();
}

void KvOutbox::Stop(ParcelId id) {
  std::unique_lock lock(mutex_);
  const auto found = parcels_.find(id);
  if (found == parcels_.end()) return;
  const std::shared_ptr<Parcel> parcel = found->second;
  parcel->stopped = true;
  if (parcel->live_link != nullptr) parcel->live_link->Shutdown(Stopped());
  parcel->changed.notify_all();
  parcel->changed.wait(lock, [&] { return !parcel->reading && !parcel->reporting; });
}

std::vector<v1::LinkCounters> KvOutbox::counters() const {
  std::lock_guard lock(mutex_);
  std::vector<v1::LinkCounters> all;
  for (const auto& [key, counters] : counters_) all.push_back(counters);
  return all;
}

void KvOutbox::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_threads_;
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    --idle_threads_;
    if (waiting_.empty()) return;
    const std::shared_ptr<Parcel> parcel = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    const KvParcelOutcome outcome = Ship(*parcel);
    lock.lock();
    parcel->live_link = nullptr;
    Count(*parcel, outcome);
    if (!parcel->stopped) {
      parcel->reporting = true;
      lock.unlock();
      parcel->order.done(outcome);
      lock.lock();
      parcel->reporting = false;
    }
    parcels_.erase(parcel->id);
    parcel->changed.notify_all();
  }
}

KvParcelOutcome KvOutbox::Ship(Parcel& parcel) {
  KvParcelOutcome outcome;
  outcome.status = Dial(parcel);
  if (outcome.status.ok()) outcome.status = SendAll(parcel);
  if (parcel.link == nullptr) return outcome;
  outcome.bytes = parcel.link->counters().bytes_sent;
  outcome.is_unix = parcel.link->is_unix();
  return outcome;
}

void KvOutbox::Count(const Parcel& parcel, const KvParcelOutcome& outcome) {
  const uint64_t peer = parcel.order.route.incarnation();
  v1::LinkCounters& counters = counters_[{peer, outcome.is_unix}];
  counters.set_kind(v1::LINK_KIND_KV);
  counters.set_transport(outcome.is_unix ? "unix" : "tcp");
  counters.set_peer_incarnation(peer);
  counters.set_bytes_sent(counters.bytes_sent() + static_cast<uint64_t>(outcome.bytes));
  counters.set_timed_bytes(counters.timed_bytes() + static_cast<uint64_t>(parcel.timed_bytes));
  counters.set_timed_seconds(counters.timed_seconds() +
                             std::chrono::duration<double>(parcel.timed).count());
  if (!outcome.status.ok() && !parcel.stopped) counters.set_failures(counters.failures() + 1);
}

absl::Status KvOutbox::Dial(Parcel& parcel) {
  const v1::KvRoute& route = parcel.order.route;
  v1::LinkIdentity identity;
  identity.set_protocol_version(kProtocolVersion);
  identity.set_incarnation(options_.incarnation);
  identity.set_peer_incarnation(route.incarnation());
  identity.set_kind(v1::LINK_KIND_KV);
  identity.set_ticket(route.ticket());
  kernels::HandshakeOptions handshake;
  handshake.token = options_.cluster_token;
  handshake.identity = identity.SerializeAsString();
  handshake.timeout_seconds = kConnectSeconds;
  handshake.verify = [&route](std::string_view text) {
    v1::LinkIdentity peer;
    if (peer.ParseFromString(std::string(text)) && peer.incarnation() == route.incarnation()) {
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError("another process than the KV is for answers there");
  };
  absl::Status last = absl::UnavailableError("it named no address for KV");
  const auto over = [&] {
    std::lock_guard lock(mutex_);
    return stopping_ || parcel.stopped;
  };
  for (const std::string& text : route.addresses()) {
    if (over()) return Stopped();
    const auto address = kernels::ParseLinkAddress(text);
    if (!address.ok()) return address.status();
    auto link = kernels::ConnectLink(*address, kConnectSeconds);
    if (!link.ok()) {
      last = link.status();
      continue;
    }
    parcel.link = *std::move(link);
    {
      std::lock_guard lock(mutex_);
      if (stopping_ || parcel.stopped) return Stopped();
      parcel.live_link = parcel.link.get();
    }
    return HandshakeAsClient(*parcel.link, handshake).status();  // the ticket is spent
  }
  return last;
}

absl::StatusOr<KvOutbox::Ready> KvOutbox::Next(Parcel& parcel) {
  std::unique_lock lock(mutex_);
  const bool comes =
      parcel.changed.wait_for(lock, std::chrono::duration<double>(options_.idle_seconds),
                              [&] { return stopping_ || parcel.stopped || !parcel.ready.empty(); });
  if (!comes) {
    return absl::DeadlineExceededError(
        StrCat("no more KV to send was computed within ", options_.idle_seconds, " s"));
  }
  if (stopping_ || parcel.stopped) return Stopped();
  Ready ready = std::move(parcel.ready.front());
  parcel.ready.pop_front();
  return ready;
}

absl::Status KvOutbox::SendAll(Parcel& parcel) {
  const auto has_all = [&] {
    std::lock_guard lock(mutex_);
    return parcel.missing_tokens <= 0 && parcel.ready.empty();
  };
  while (!has_all()) {
    const absl::StatusOr<Ready> ready = Next(parcel);
    if (!ready.ok()) return ready.status();
    const absl::Status sent = SendPieces(parcel, *ready);
    if (!sent.ok()) return sent;
  }
  return parcel.link
      ->Receive(static_cast<uint16_t>(KvFrame::kComplete), absl::Span<std::byte>(),
                options_.wait_seconds)
      .status();
}

absl::Status KvOutbox::SendPieces(Parcel& parcel, const Ready& ready) {
  const kvcache::KvPool& pool = parcel.order.pool;
  const v1::KvCodec codec = parcel.order.codec;
  const kvcache::KvShare part = {{ready.layer, ready.layer + 1},
                                 ToIndexRange(parcel.order.route.part().kv_heads())};
  v1::KvPiece piece;
  piece.set_dtype(ToProto(pool.type));
  piece.set_codec(codec);
  *piece.mutable_kv_heads() = parcel.order.route.part().kv_heads();
  piece.mutable_layers()->set_begin(part.layers.begin);
  piece.mutable_layers()->set_end(part.layers.end);
  const int64_t group = TokensPerGroup(codec);
  const int64_t group_bytes = KvPieceBytes(codec, part, group, pool.head_dim, pool.type);
  const int64_t most = group * std::max<int64_t>(1, kMaxPieceBytes / group_bytes);
  for (int64_t begin = ready.first; begin < ready.end; begin += most) {
    const int64_t end = std::min(begin + most, ready.end);
    parcel.elements.resize(
        static_cast<size_t>(KvPieceBytes(codec, part, end - begin, pool.head_dim, pool.type)));
    {
      std::lock_guard lock(mutex_);
      if (stopping_ || parcel.stopped) return Stopped();
      parcel.reading = true;
    }
    EncodeKv(codec, pool, part, kvcache::SlotRuns(*ready.table, pool.block_tokens, begin, end),
             parcel.elements.data());
    {
      std::lock_guard lock(mutex_);
      parcel.reading = false;
      parcel.changed.notify_all();
    }
    piece.set_first_token(static_cast<int32_t>(begin));
    piece.set_end_token(static_cast<int32_t>(end));
    const std::string text = piece.SerializeAsString();
    const auto length = static_cast<uint32_t>(text.size());
    const absl::Span<const std::byte> parts[] = {
        {reinterpret_cast<const std::byte*>(&length), sizeof length}, Bytes(text), parcel.elements};
    const Clock::time_point began = Clock::now();
    const absl::Status sent = parcel.link->Send(static_cast<uint16_t>(KvFrame::kPiece),
                                                absl::MakeConstSpan(parts), options_.wait_seconds);
    if (!sent.ok()) return sent;
    if (static_cast<int64_t>(parcel.elements.size()) < kernels::kTimedPayloadBytes) continue;
    parcel.timed += Clock::now() - began;
    parcel.timed_bytes += static_cast<int64_t>(parcel.elements.size());
  }
  return absl::OkStatus();
}

}  // namespace tessera::worker
