#include "kernels/links/link.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/kernels/links/transports.h"

namespace tessera::kernels {
namespace {

using tests::Connect;
using tests::kPatienceSeconds;
using tests::LinkedEnds;
using tests::Transports;

constexpr uint16_t kType = kFirstOwnerFrame;

std::vector<std::byte> Pattern(size_t size, int seed) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>((i * 131 + seed) % 251);
  return bytes;
}

absl::Span<const std::byte> Bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// A link whose other end is a bare socket, which can say anything.
struct BareEnd {
  FileDescriptor socket;
  std::unique_ptr<Link> link;

  BareEnd() {
    int fds[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    socket = FileDescriptor(fds[0]);
    link = std::make_unique<Link>(FileDescriptor(fds[1]), "worker nine");
  }
  void Write(absl::Span<const std::byte> bytes) const {
    REQUIRE(write(socket.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  }
};

TEST_CASE("frames arrive whole, in order, from parts into parts") {
  for (const std::string& transport : Transports()) {
    INFO(transport);
    const LinkedEnds ends = Connect(transport);
    const int64_t sent = ends.first->counters().bytes_sent;
    const int64_t arrived = ends.second->counters().bytes_received;
    const std::vector<absl::Span<const std::byte>> parts = {Bytes("one "), Bytes(""),
                                                            Bytes("frame")};
    REQUIRE(ends.first->Send(kType, parts, kPatienceSeconds).ok());
    REQUIRE(ends.first->Send(kType + 1, absl::Span<const std::byte>(), kPatienceSeconds).ok());
    REQUIRE(ends.first->Send(kType + 2, Bytes("third"), kPatienceSeconds).ok());

    std::string head(3, '?');
    std::string tail(10, '?');
    const std::vector<absl::Span<std::byte>> into = {
        {reinterpret_cast<std::byte*>(head.data()), head.size()},
        {reinterpret_cast<std::byte*>(tail.data()), tail.size()}};
    const auto received = ends.second->Receive(kType, into, kPatienceSeconds);
    REQUIRE(received.ok());
    CHECK(*received == 9);
    CHECK(head == "one");
    CHECK(tail == " frame????");
    const auto nothing = ends.second->Receive(kType + 1, absl::Span<std::byte>(), kPatienceSeconds);
    REQUIRE(nothing.ok());
    CHECK(*nothing == 0);
    std::string text;
    const auto type = ends.second->ReceiveAny(5, &text, kPatienceSeconds);
    REQUIRE(type.ok());
    CHECK(*type == kType + 2);
    CHECK(text == "third");
    CHECK(ends.first->counters().bytes_sent - sent == 3 * kFrameHeaderBytes + 14);
    CHECK(ends.second->counters().bytes_received - arrived == 3 * kFrameHeaderBytes + 14);
  }
}

TEST_CASE("several links count into one tally, with what they moved before") {
  const LinkedEnds one = Connect("unix"), two = Connect("unix");
  REQUIRE(one.first->Send(kType, Bytes("12345"), kPatienceSeconds).ok());
  const auto sent = std::make_shared<LinkTally>(), received = std::make_shared<LinkTally>();
  one.first->CountInto(sent);
  two.first->CountInto(sent);
  one.second->CountInto(received);
  two.second->CountInto(received);
  REQUIRE(two.first->Send(kType, Bytes("123"), kPatienceSeconds).ok());
  std::string text;
  for (Link* link : {one.second.get(), two.second.get()})
    REQUIRE(link->ReceiveAny(5, &text, kPatienceSeconds).ok());
  CHECK(sent->Read().bytes_sent == 2 * kFrameHeaderBytes + 8);
  CHECK(sent->Read().bytes_received == 0);
  CHECK(received->Read().bytes_received == 2 * kFrameHeaderBytes + 8);
  CHECK(one.first->counters().bytes_sent == kFrameHeaderBytes + 5);
}

TEST_CASE("large frames are timed where the receiver was there first, and only those") {
  constexpr std::chrono::milliseconds kDelay(200);
  for (const std::string& transport : Transports()) {
    INFO(transport);
    const LinkedEnds ends = Connect(transport);
    CHECK(ends.first->is_unix() == (transport.substr(0, 3) != "tcp"));
    const std::vector<std::byte> large = Pattern(kTimedPayloadBytes, 1);
    std::vector<std::byte> memory(large.size());
    const auto receive = [&] {
      return ends.second->Receive(kType, absl::MakeSpan(memory), kPatienceSeconds).ok();
    };
    // Sent whole before anybody waits for it, then one byte less than is timed.
    REQUIRE(ends.first->Send(kType, large, kPatienceSeconds).ok());
    REQUIRE(receive());
    CHECK(ends.second->counters().timed_bytes == 0);
    const auto wait_and_receive = [&](absl::Span<const std::byte> bytes) {
      absl::Status sent;
      std::thread later([&] {
        std::this_thread::sleep_for(kDelay);
        sent = ends.first->Send(kType, bytes, kPatienceSeconds);
      });
      const bool received = receive();
      later.join();
      REQUIRE(received);
      REQUIRE(sent.ok());
    };
    wait_and_receive(absl::MakeConstSpan(large).first(large.size() - 1));
    CHECK(ends.second->counters().timed_bytes == 0);
    wait_and_receive(large);
    CHECK(ends.second->counters().timed_bytes == kTimedPayloadBytes);
    CHECK(ends.second->counters().timed_seconds > 0);
    // The wait before the first byte does not count.
    CHECK(ends.second->counters().timed_seconds < std::chrono::duration<double>(kDelay).count());
    CHECK(ends.first->counters().timed_bytes == 0);
  }
}

TEST_CASE("large frames go both ways at once") {
  constexpr size_t kBytes = (8 << 20) + 3;
  for (const std::string& transport : Transports()) {
    INFO(transport);
    const LinkedEnds ends = Connect(transport);
    const std::vector<std::byte> sent = Pattern(kBytes, 1);
    std::vector<absl::Status> statuses(2);
    std::thread sender_1([&] { statuses[0] = ends.first->Send(kType, sent, kPatienceSeconds); });
    std::thread sender_2([&] { statuses[1] = ends.second->Send(kType, sent, kPatienceSeconds); });
    for (Link* link : {ends.first.get(), ends.second.get()}) {
      std::vector<std::byte> received(kBytes);
      const auto bytes = link->Receive(kType, absl::MakeSpan(received), kPatienceSeconds);
      CHECK(bytes.ok());
      CHECK(received == sent);
    }
    sender_1.join();
    sender_2.join();
    CHECK(statuses[0].ok());
    CHECK(statuses[1].ok());
  }
}

TEST_CASE("senders of several threads do not mix their frames") {
  constexpr int kFrames = 50;
  constexpr size_t kBytes = 100'000;
  const LinkedEnds ends = Connect("tcp");
  std::vector<std::thread> senders;
  for (int seed = 0; seed < 2; ++seed) {
    senders.emplace_back([&, seed] {
      const std::vector<std::byte> bytes = Pattern(kBytes, seed);
      for (int i = 0; i < kFrames; ++i) {
        ends.first->Send(static_cast<uint16_t>(kType + seed), bytes, kPatienceSeconds)
            .IgnoreError();
      }
    });
  }
  for (int i = 0; i < 2 * kFrames; ++i) {
    std::string payload;
    const auto type = ends.second->ReceiveAny(kBytes, &payload, kPatienceSeconds);
    REQUIRE(type.ok());
    const std::vector<std::byte> expected = Pattern(kBytes, *type - kType);
    REQUIRE(payload.size() == kBytes);
    REQUIRE(std::memcmp(payload.data(), expected.data(), kBytes) == 0);
  }
  for (std::thread& sender : senders) sender.join();
}

TEST_CASE("a wait for a frame is bounded and leaves the link whole") {
  for (const std::string& transport : Transports()) {
    INFO(transport);
    const LinkedEnds ends = Connect(transport);
    std::string payload;
    const absl::Status late = ends.first->ReceiveAny(8, &payload, 0.01).status();
    CHECK(late.code() == absl::StatusCode::kDeadlineExceeded);
    CHECK_THAT(std::string(late.message()), Catch::Contains("second"));
    CHECK(ends.first->status().ok());
    REQUIRE(ends.second->Send(kType, Bytes("now"), kPatienceSeconds).ok());
    CHECK(ends.first->ReceiveAny(8, &payload, kPatienceSeconds).ok());
    CHECK(payload == "now");
  }
}

TEST_CASE("a peer that takes nothing, or half a frame, ends the link in bounded time") {
  const LinkedEnds ends = Connect("pair");
  const std::vector<std::byte> large(64 << 20);
  const absl::Status half = ends.first->Send(kType, large, 0.05);
  CHECK(half.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK(ends.first->status() == half);
  CHECK(ends.first->Send(kType, Bytes("x"), kPatienceSeconds) == half);

  const BareEnd bare;
  bare.Write(absl::MakeConstSpan(EncodeFrameHeader({kType, 4})).first(7));
  std::string payload;
  const absl::Status cut = bare.link->ReceiveAny(8, &payload, 0.05).status();
  CHECK(cut.code() == absl::StatusCode::kDeadlineExceeded);
  CHECK_THAT(std::string(cut.message()), Catch::Contains("worker nine"));
  CHECK(bare.link->status() == cut);
}

TEST_CASE("a shutdown wakes the calls of both sides, with the reason on this one") {
  for (const std::string& transport : Transports()) {
    INFO(transport);
    const LinkedEnds ends = Connect(transport);
    absl::Status here;
    absl::Status there;
    std::thread waits_here([&] {
      std::string payload;
      here = ends.first->ReceiveAny(8, &payload, kPatienceSeconds).status();
    });
    std::thread waits_there([&] {
      std::string payload;
      there = ends.second->ReceiveAny(8, &payload, kPatienceSeconds).status();
    });
    ends.first->Shutdown(absl::AbortedError("the formation ended"));
    waits_here.join();
    waits_there.join();
    CHECK(here == absl::AbortedError("the formation ended"));
    CHECK(there.code() == absl::StatusCode::kUnavailable);
    CHECK_THAT(std::string(there.message()), Catch::Contains("first"));
    CHECK(ends.first->Send(kType, Bytes("x"), 1) == here);
    ends.first->Shutdown(absl::InternalError("later"));
    CHECK(ends.first->status() == here);
  }
}

TEST_CASE("what a peer sent before it closed is read; then the link fails") {
  for (const std::string& transport : Transports()) {
    INFO(transport);
    LinkedEnds ends = Connect(transport);
    CHECK_FALSE(ends.first->PeerClosed());
    REQUIRE(ends.second->Send(kType, Bytes("last words"), kPatienceSeconds).ok());
    ends.second.reset();
    std::string payload;
    REQUIRE(ends.first->ReceiveAny(64, &payload, kPatienceSeconds).ok());
    CHECK(payload == "last words");
    const absl::Status closed = ends.first->ReceiveAny(64, &payload, kPatienceSeconds).status();
    CHECK(closed.code() == absl::StatusCode::kUnavailable);
    CHECK_THAT(std::string(closed.message()), Catch::Contains("second"));
    CHECK(ends.first->PeerClosed());
  }
}

TEST_CASE("frames that are not expected end the link by name") {
  std::string payload;
  std::vector<std::byte> memory(4);
  const BareEnd garbage;
  garbage.Write(Bytes("GET / HTTP/1.1\r\n\r\n"));
  const absl::Status status = garbage.link->ReceiveAny(64, &payload, kPatienceSeconds).status();
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(status.message()), Catch::Contains("worker nine"));

  const BareEnd large;
  large.Write(EncodeFrameHeader({kType, 65}));
  CHECK(large.link->ReceiveAny(64, &payload, kPatienceSeconds).status().code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(payload.size() <= 64);

  const BareEnd other;
  other.Write(EncodeFrameHeader({kType + 1, 4}));
  CHECK(other.link->Receive(kType, absl::MakeSpan(memory), kPatienceSeconds).status().code() ==
        absl::StatusCode::kFailedPrecondition);

  const BareEnd longer;
  longer.Write(EncodeFrameHeader({kType, 5}));
  CHECK(longer.link->Receive(kType, absl::MakeSpan(memory), kPatienceSeconds).status().code() ==
        absl::StatusCode::kFailedPrecondition);
  CHECK_FALSE(longer.link->status().ok());
}

TEST_CASE("frames above the limits are refused before anything is sent") {
  const LinkedEnds ends = Connect("pair");
  const std::vector<absl::Span<const std::byte>> parts(Link::kMaxParts + 1, Bytes("x"));
  CHECK(ends.first->Send(kType, parts, 1).code() == absl::StatusCode::kInvalidArgument);
  const std::vector<absl::Span<const std::byte>> most(Link::kMaxParts, Bytes("x"));
  CHECK(ends.first->Send(kType, most, kPatienceSeconds).ok());
  CHECK(ends.first->counters().bytes_sent == kFrameHeaderBytes + Link::kMaxParts);
}

TEST_CASE("an open file is passed over a Unix socket, and over no other") {
  const FileDescriptor file(memfd_create("passed", MFD_CLOEXEC));
  REQUIRE(write(file.get(), "hello", 5) == 5);
  for (const char* transport : {"pair", "unix"}) {
    const LinkedEnds ends = Connect(transport);
    REQUIRE(ends.first->SendDescriptor(file.get(), kPatienceSeconds).ok());
    const auto passed = ends.second->ReceiveDescriptor(kPatienceSeconds);
    REQUIRE(passed.ok());
    char text[5];
    REQUIRE(pread(passed->get(), text, 5, 0) == 5);
    CHECK(std::string(text, 5) == "hello");
    REQUIRE(ends.first->Send(kDescriptorFrame, absl::Span<const std::byte>(), 1).ok());
    CHECK_FALSE(ends.second->ReceiveDescriptor(kPatienceSeconds).ok());
  }
  const LinkedEnds ends = Connect("tcp");
  CHECK(ends.first->SendDescriptor(file.get(), 1).code() == absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace tessera::kernels
