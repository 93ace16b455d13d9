#include "kernels/collectives/tensor_transfer.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/kernels/collectives/cpu_streams.h"
#include "tests/kernels/links/transports.h"

namespace tessera::kernels {
namespace {

using tests::kPatienceSeconds;

// Two processes' streams and the link between them.
struct TwoStreams {
  tests::LinkedEnds ends;
  // Destroyed before the link, which what is enqueued needs.
  const tests::CpuStreams streams{2};
  Stream& sender = streams[0];
  Stream& receiver = streams[1];

  explicit TwoStreams(const std::string& transport) : ends(tests::Connect(transport)) {}
  absl::Status Send(const TensorView& view) {
    return SendTensor(view, *ends.first, kPatienceSeconds, sender);
  }
  absl::Status Receive(const TensorView& view, double timeout_seconds = kPatienceSeconds) {
    return ReceiveTensor(view, *ends.second, timeout_seconds, receiver);
  }
};

TensorView View(std::vector<float>& values) {
  return TensorView(values.data(), DType::kF32, {static_cast<int64_t>(values.size())});
}

TEST_CASE("tensors of any size arrive in order, before what is enqueued behind them") {
  for (const std::string& transport : tests::Transports()) {
    INFO(transport);
    TwoStreams streams(transport);
    std::vector<std::vector<float>> sent;
    std::vector<std::vector<float>> received;
    for (const size_t size : {size_t{1}, size_t{0}, size_t{1000}, size_t{2'000'001}}) {
      sent.emplace_back(size, static_cast<float>(size + 1));
      received.emplace_back(size, 0.0F);
    }
    float last = 0;
    for (size_t i = 0; i < sent.size(); ++i) {
      REQUIRE(streams.Receive(View(received[i])).ok());
      REQUIRE(streams.Send(View(sent[i])).ok());
    }
    REQUIRE(streams.receiver.CopyToHost(&last, &received.back().back(), sizeof last).ok());
    CHECK(streams.sender.Synchronize().ok());
    CHECK(streams.receiver.Synchronize().ok());
    CHECK(received == sent);
    CHECK(last == sent.back().back());
  }
}

TEST_CASE("a tensor of another size fails the stream and the link") {
  for (const size_t size : {size_t{9}, size_t{11}}) {
    TwoStreams streams("pair");
    std::vector<float> sent(size, 1.0F);
    std::vector<float> received(10, 0.0F);
    float copied = -1;
    REQUIRE(streams.Send(View(sent)).ok());
    REQUIRE(streams.Receive(View(received)).ok());
    REQUIRE(streams.receiver.CopyToHost(&copied, received.data(), sizeof copied).ok());
    CHECK(streams.receiver.Synchronize().code() == absl::StatusCode::kFailedPrecondition);
    CHECK(copied == -1);
    CHECK_FALSE(streams.ends.second->status().ok());
  }
}

TEST_CASE("a peer that sends nothing costs a bounded wait, one that is gone none") {
  TwoStreams streams("tcp");
  std::vector<float> values(10);
  REQUIRE(streams.Receive(View(values), 0.05).ok());
  CHECK(streams.receiver.Synchronize().code() == absl::StatusCode::kDeadlineExceeded);
  streams.ends.first.reset();
  REQUIRE(streams.Receive(View(values)).ok());
  CHECK(streams.receiver.Synchronize().code() == absl::StatusCode::kUnavailable);
}

TEST_CASE("tensors that no frame can carry are refused at once") {
  TwoStreams streams("pair");
  std::vector<float> values(12);
  TensorView strided(values.data(), DType::kF32, {2, 3});
  strided.row_stride = 6;
  CHECK(streams.Send(strided).code() == absl::StatusCode::kInvalidArgument);
  const TensorView huge(values.data(), DType::kF32, {kMaxPayloadBytes / 4 + 1});
  CHECK(streams.Receive(huge).code() == absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tessera::kernels
