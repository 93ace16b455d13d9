// Hubs of one process join a replica of two workers over real sockets, and count what moves.
#include "worker/formation/link_hub.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "kernels/links/handshake.h"
#include "kernels/links/link_address.h"
#include "kernels/links/link_socket.h"
#include "proto/protocol.h"
#include "tests/temporary_folder.h"

namespace tessera::worker {
namespace {

constexpr uint16_t kType = kernels::kFirstOwnerFrame;
constexpr double kPatienceSeconds = 30;
constexpr uint64_t kIncarnations[] = {11, 22};

struct Hubs {
  std::unique_ptr<LinkHub> hubs[2];
  v1::ConfigureRequest request;

  explicit Hubs(const std::vector<std::string>& addresses) {
    request.mutable_fence()->set_plan_epoch(3);
    request.set_replica("r0");
    for (int i = 0; i < 2; ++i) {
      auto hub = LinkHub::Start({{addresses[i]}, "a-token-of-sixteen-bytes", kIncarnations[i]});
      REQUIRE(hub.ok());
      hubs[i] = *std::move(hub);
      v1::Peer* peer = request.add_peers();
      peer->set_stage(i);
      peer->set_address("box/" + std::to_string(i));
      peer->set_worker_incarnation(kIncarnations[i]);
      peer->add_link_addresses(hubs[i]->addresses()[0]);
    }
  }

  // Both members, joined.
  std::vector<std::unique_ptr<Formation>> Join() {
    std::vector<std::unique_ptr<Formation>> formations(2);
    absl::Status statuses[2];
    const FormationTimes times = {.join_seconds = kPatienceSeconds};
    std::thread threads[2];
    for (int i = 0; i < 2; ++i) {
      threads[i] = std::thread([&, i] {
        v1::ConfigureRequest mine = request;
        mine.set_stage(i);
        auto formation = hubs[i]->Join(mine, 5, times, {[] { return false; }});
        statuses[i] = formation.status();
        if (formation.ok()) formations[i] = *std::move(formation);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const absl::Status& status : statuses) {
      INFO(status.ToString());
      REQUIRE(status.ok());
    }
    return formations;
  }
};

const v1::LinkCounters* Find(const v1::WorkerCounters& counters, v1::LinkKind kind, uint64_t peer) {
  for (const v1::LinkCounters& links : counters.links()) {
    if (links.kind() == kind && links.peer_incarnation() == peer) return &links;
  }
  return nullptr;
}

void SendRows(const std::vector<std::unique_ptr<Formation>>& formations, size_t bytes) {
  const std::vector<std::byte> rows(bytes);
  std::vector<std::byte> memory(bytes);
  absl::Status sent;
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    sent = formations[0]->stage_links().next->Send(kType, rows, kPatienceSeconds);
  });
  const auto received = formations[1]->stage_links().previous->Receive(
      kType, absl::MakeSpan(memory), kPatienceSeconds);
  later.join();
  REQUIRE(sent.ok());
  REQUIRE(received.ok());
}

double SecondsOf(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Of the second worker of `two`, at `address`.
v1::ProbeLinkRequest ProbeOf(const std::string& address) {
  v1::ProbeLinkRequest request;
  request.set_peer("box/1");
  request.set_peer_incarnation(kIncarnations[1]);
  request.add_link_addresses(address);
  return request;
}

}  // namespace

TEST_CASE("both ends of a link count the same bytes, by kind, transport and peer") {
  const tests::TemporaryFolder folder;
  const std::string path = "unix:" + folder.path().string();
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{path + "/a.sock", path + "/b.sock"}, "unix"}, {{"127.0.0.1:0", "127.0.0.1:0"}, "tcp"}};
  for (const auto& [addresses, transport] : cases) {
    INFO(transport);
    Hubs two(addresses);
    CHECK(two.hubs[0]->counters().links().empty());
    auto formations = two.Join();
    SendRows(formations, 1 << 20);
    const v1::WorkerCounters first = two.hubs[0]->counters(), second = two.hubs[1]->counters();
    for (const v1::LinkKind kind : {v1::LINK_KIND_CONTROL, v1::LINK_KIND_BULK}) {
      const v1::LinkCounters* mine = Find(first, kind, 22);
      const v1::LinkCounters* theirs = Find(second, kind, 11);
      REQUIRE((mine != nullptr && theirs != nullptr));
      CHECK(mine->transport() == transport);
      CHECK(theirs->transport() == transport);
      CHECK(mine->bytes_sent() > 0);
      CHECK(mine->bytes_sent() == theirs->bytes_received());
      CHECK(mine->bytes_received() == theirs->bytes_sent());
    }
    CHECK(Find(first, v1::LINK_KIND_BULK, 22)->bytes_sent() >= 1 << 20);
    CHECK(Find(first, v1::LINK_KIND_BULK, 22)->timed_bytes() == 0);
    CHECK(Find(second, v1::LINK_KIND_BULK, 11)->timed_bytes() == 1 << 20);
    CHECK(Find(second, v1::LINK_KIND_BULK, 11)->timed_seconds() > 0);
    CHECK(Find(first, v1::LINK_KIND_HEARTBEAT, 22) != nullptr);
  }
}

TEST_CASE("of closed links the sum is kept, and links that are opened again begin at 0") {
  Hubs two({"127.0.0.1:0", "127.0.0.1:0"});
  auto formations = two.Join();
  SendRows(formations, 1 << 20);
  const uint64_t first = Find(two.hubs[0]->counters(), v1::LINK_KIND_BULK, 22)->bytes_sent();
  formations.clear();
  const v1::WorkerCounters closed = two.hubs[0]->counters();
  CHECK(Find(closed, v1::LINK_KIND_BULK, 22) == nullptr);
  CHECK(Find(closed, v1::LINK_KIND_BULK, 0)->bytes_sent() == first);
  two.request.mutable_fence()->set_plan_epoch(4);
  formations = two.Join();
  const v1::WorkerCounters again = two.hubs[0]->counters();
  CHECK(Find(again, v1::LINK_KIND_BULK, 0)->bytes_sent() == first);
  CHECK(Find(again, v1::LINK_KIND_BULK, 22)->bytes_sent() < 1 << 20);
  formations.clear();
  CHECK(Find(two.hubs[0]->counters(), v1::LINK_KIND_BULK, 0)->bytes_sent() > first);
}

TEST_CASE(
    "a worker that joins later than its peer is reached at its best address, not the next one") {
  const tests::TemporaryFolder folder;
  const std::string path = "unix:" + folder.path().string();
  Hubs two({path + "/a.sock", path + "/b.sock"});
  auto other = kernels::LinkListener::Listen(*kernels::ParseLinkAddress("127.0.0.1:0"));
  REQUIRE(other.ok());
  two.request.mutable_peers(0)->add_link_addresses((*other)->address().ToString());
  v1::ConfigureRequest first = two.request, second = two.request;
  second.set_stage(1);
  const FormationTimes times = {.join_seconds = kPatienceSeconds};
  absl::Status early;
  std::unique_ptr<Formation> formation;
  std::thread dialer([&] {
    auto joined = two.hubs[1]->Join(second, 5, times, {[] { return false; }});
    early = joined.status();
    if (joined.ok()) formation = *std::move(joined);
  });
  const auto strayed = (*other)->Accept(0.3);
  auto joined = two.hubs[0]->Join(first, 5, times, {[] { return false; }});
  dialer.join();
  CHECK(absl::IsDeadlineExceeded(strayed.status()));
  REQUIRE(joined.ok());
  REQUIRE(early.ok());
  CHECK(two.hubs[0]->counters().links_refused() == 0);
}

TEST_CASE("connections that are refused for good are counted") {
  Hubs two({"127.0.0.1:0", "127.0.0.1:0"});
  const auto address = kernels::ParseLinkAddress(two.hubs[0]->addresses()[0]);
  REQUIRE(address.ok());
  auto link = kernels::ConnectLink(*address, kPatienceSeconds);
  REQUIRE(link.ok());
  CHECK(absl::IsPermissionDenied(
      HandshakeAsClient(**link, {.token = "another-token-of-that-size"}).status()));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (two.hubs[0]->counters().links_refused() == 0 &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  CHECK(two.hubs[0]->counters().links_refused() == 1);
  CHECK(two.hubs[1]->counters().links_refused() == 0);
  CHECK(two.hubs[0]->counters().links().empty());
}

TEST_CASE("strangers that connect again and again and say nothing hold nobody up") {
  Hubs two({"127.0.0.1:0", "127.0.0.1:0"});
  const auto strangers_of = [](const std::string& address) {
    std::vector<std::unique_ptr<kernels::Link>> strangers;
    for (int i = 0; i < 64; ++i) {
      auto link = kernels::ConnectLink(*kernels::ParseLinkAddress(address), kPatienceSeconds);
      REQUIRE(link.ok());
      strangers.push_back(*std::move(link));
    }
    return strangers;
  };
  std::vector<std::unique_ptr<kernels::Link>> strangers[2];
  for (int i = 0; i < 2; ++i) strangers[i] = strangers_of(two.hubs[i]->addresses()[0]);
  std::atomic<bool> stop{false};
  std::thread keeps_coming([&] {
    while (!stop) {
      for (int i = 0; i < 2; ++i) {
        for (auto& stranger : strangers[i]) {
          if (!stranger->PeerClosed()) continue;
          auto link = kernels::ConnectLink(*kernels::ParseLinkAddress(two.hubs[i]->addresses()[0]),
                                           kPatienceSeconds);
          if (link.ok()) stranger = *std::move(link);
        }
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  });
  // In turns of 16 they would take five seconds each turn.
  CHECK(SecondsOf([&] { SendRows(two.Join(), 1 << 20); }) < 4);
  stop = true;
  keeps_coming.join();
}

TEST_CASE("a probe measures latency and both directions, over Unix sockets and TCP") {
  const tests::TemporaryFolder folder;
  const std::string path = "unix:" + folder.path().string();
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{path + "/a.sock", path + "/b.sock"}, "unix"}, {{"127.0.0.1:0", "127.0.0.1:0"}, "tcp"}};
  for (const auto& [addresses, transport] : cases) {
    INFO(transport);
    Hubs two(addresses);
    v1::ProbeLinkRequest request = ProbeOf(two.hubs[1]->addresses()[0]);
    for (int i = 0; i < 2; ++i) {  // the echo of the first one makes room for the second
      absl::StatusOr<v1::ProbeLinkReply> rates = absl::UnknownError("");
      CHECK(SecondsOf([&] { rates = two.hubs[0]->Probe(request); }) < 2.5);
      INFO(rates.status().ToString());
      // The echo of an earlier probe may take a moment to see its link closed.
      if (absl::IsAborted(rates.status())) {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        rates = two.hubs[0]->Probe(request);
      }
      REQUIRE(rates.ok());
      CHECK(rates->transport() == transport);
      CHECK(rates->latency_seconds() > 1e-7);
      CHECK(rates->latency_seconds() < 0.1);
      CHECK(rates->sent_bytes_per_second() > 1e6);
      CHECK(rates->received_bytes_per_second() > 1e6);
    }
    // Probes are counted, and leave both ready for a replica.
    bool counted = false;
    const v1::WorkerCounters counters = two.hubs[0]->counters();
    for (const v1::LinkCounters& links : counters.links())
      counted |= links.kind() == v1::LINK_KIND_PROBE && links.bytes_sent() > 1 << 16;
    CHECK(counted);
    SendRows(two.Join(), 1 << 20);
  }
}

TEST_CASE("a probe of a peer that is silent ends in bounded time, and names the peer") {
  // It takes the connection and says nothing.
  auto silent = kernels::LinkListener::Listen(*kernels::ParseLinkAddress("127.0.0.1:0"));
  REQUIRE(silent.ok());
  Hubs two({"127.0.0.1:0", "127.0.0.1:0"});
  absl::Status status;
  v1::ProbeLinkRequest request = ProbeOf((*silent)->address().ToString());
  const double dialed = SecondsOf([&] { status = two.hubs[0]->Probe(request).status(); });
  CHECK(absl::IsDeadlineExceeded(status));
  CHECK(status.message().find("no link to box/1") != std::string_view::npos);
  CHECK(dialed < 2.5);
  // It does the handshake, and does not echo.
  std::thread peer([&] {
    auto link = (*silent)->Accept(kPatienceSeconds);
    while (link.ok()) {  // the first connection, whose dialer has gone, is of no use
      v1::LinkIdentity identity;
      identity.set_protocol_version(kProtocolVersion);
      identity.set_incarnation(kIncarnations[1]);
      const kernels::HandshakeOptions handshake = {.token = "a-token-of-sixteen-bytes",
                                                   .identity = identity.SerializeAsString()};
      if (HandshakeAsServer(**link, handshake).ok()) break;
      link = (*silent)->Accept(kPatienceSeconds);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  });
  const double measured = SecondsOf([&] { status = two.hubs[0]->Probe(request).status(); });
  peer.join();
  INFO(status.ToString());
  CHECK(absl::IsDeadlineExceeded(status));
  CHECK(status.message().find("did not echo in time") != std::string_view::npos);
  CHECK(measured < 2.5);
}

TEST_CASE("no probe begins while either worker joins a replica; the join goes on") {
  Hubs two({"127.0.0.1:0", "127.0.0.1:0"});
  v1::ConfigureRequest second = two.request;
  second.set_stage(1);
  std::atomic<bool> cancelled = false;
  absl::Status joined;
  std::thread joiner([&] {
    joined = two.hubs[1]
                 ->Join(second, 5, {.join_seconds = kPatienceSeconds},
                        {[&] { return cancelled.load(); }})
                 .status();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const absl::Status of_it = two.hubs[0]->Probe(ProbeOf(two.hubs[1]->addresses()[0])).status();
  v1::ProbeLinkRequest back = ProbeOf(two.hubs[0]->addresses()[0]);
  back.set_peer_incarnation(kIncarnations[0]);
  const absl::Status by_it = two.hubs[1]->Probe(back).status();
  INFO(of_it.ToString() << "\n" << by_it.ToString());
  CHECK(absl::IsAborted(of_it));
  CHECK(absl::IsAborted(by_it));
  CHECK(two.hubs[1]->counters().links_refused() == 0);
  cancelled = true;
  joiner.join();
  CHECK(absl::IsCancelled(joined));
}

TEST_CASE("a member that no link reaches is named with its address while the other one waits") {
  Hubs two({"127.0.0.1:0", "127.0.0.1:0"});
  two.request.mutable_peers(0)->set_link_addresses(0, "127.0.0.1:1");  // nobody listens there
  v1::ConfigureRequest second = two.request;
  second.set_stage(1);
  std::vector<std::string> blocked;
  const absl::Status joined =
      two.hubs[1]
          ->Join(second, 5, {.join_seconds = kPatienceSeconds, .blocked_after_seconds = 0.2},
                 {[&] { return !blocked.empty(); },
                  [&](const std::string& reason) { blocked.push_back(reason); }})
          .status();
  CHECK(absl::IsCancelled(joined));
  REQUIRE(blocked.size() == 2);
  INFO(blocked[0]);
  CHECK_THAT(blocked[0],
             Catch::StartsWith("cannot reach r0 stage 0 rank 0 (box/0): link at 127.0.0.1:1: "));
  CHECK_THAT(blocked[0], Catch::Contains("--link-port") && Catch::Contains("--advertise-link"));
  CHECK(blocked[1].empty());
}

TEST_CASE("a member that is not that far yet is not called unreachable") {
  Hubs two({"127.0.0.1:0", "127.0.0.1:0"});
  v1::ConfigureRequest second = two.request;
  second.set_stage(1);
  int asked = 0;
  std::vector<std::string> blocked;
  const absl::Status joined =
      two.hubs[1]
          ->Join(second, 5, {.join_seconds = kPatienceSeconds, .blocked_after_seconds = 0},
                 {[&] { return ++asked == 5; },
                  [&](const std::string& reason) { blocked.push_back(reason); }})
          .status();
  CHECK(absl::IsCancelled(joined));
  CHECK(blocked.empty());
}

}  // namespace tessera::worker
