// The worker's gRPC edge over loopback, with the toy model behind it.
#include "worker/worker_service.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <poll.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "kernels/links/link_address.h"
#include "kernels/links/link_socket.h"
#include "proto/leader_term.h"
#include "proto/protocol.h"
#include "tests/worker/engine/engine_harness.h"
#include "tests/worker/worker_harness.h"

namespace tessera::worker {
namespace {

constexpr char kToken[] = "a-token-of-sixteen-bytes-and-more";

// Waits, in short pauses, until `done` or for ten seconds.
template <typename Condition>
bool Eventually(const Condition& done) {
  for (int i = 0; i < 2000; ++i) {
    if (done()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return done();
}

// Calls a method of which only the name is known here, with bytes as they go over the wire.
grpc::Status CallRaw(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                     const std::string& request, std::string* reply) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const grpc::Slice sent(request);
  auto call = stub.PrepareUnaryCall(&context, method, grpc::ByteBuffer(&sent, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer received;
  grpc::Status status;
  call->Finish(&received, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  std::vector<grpc::Slice> slices;
  received.Dump(&slices);
  for (const grpc::Slice& slice : slices) {
    reply->append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return status;
}

// A coordinator's end of a session.
struct Client {
  explicit Client(Worker* worker, uint64_t epoch = 1) : fence(Worker::Fence(epoch)) {
    stream = worker->stub->Session(&context);
  }
  bool Credit(int32_t messages) {
    v1::SessionRequest request;
    *request.mutable_fence() = fence;
    request.mutable_credit()->set_messages(messages);
    return stream->Write(request);
  }
  bool Submit(const v1::Submit& submit) {
    v1::SessionRequest request;
    *request.mutable_fence() = fence;
    *request.mutable_submit() = submit;
    return stream->Write(request);
  }
  bool Cancel(uint64_t id) {
    v1::SessionRequest request;
    *request.mutable_fence() = fence;
    request.mutable_cancel()->set_submission_id(id);
    request.mutable_cancel()->set_attempt(1);
    request.mutable_cancel()->set_choice(-1);
    return stream->Write(request);
  }
  // Reads until `count` choices finished.
  void ReadUntilFinished(int count) {
    v1::SessionReply reply;
    while (count > 0 && stream->Read(&reply)) {
      ++replies;
      last = reply;
      for (const v1::TokenEvent& event : reply.events()) {
        if (event.has_token()) tokens[event.submission_id()].push_back(event.token_id());
        if (event.finish() == v1::FINISH_REASON_UNSPECIFIED) continue;
        finish[event.submission_id()] = event;
        --count;
      }
    }
    REQUIRE(count == 0);
  }

  v1::Fence fence;
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReaderWriter<v1::SessionRequest, v1::SessionReply>> stream;
  std::map<uint64_t, std::vector<int32_t>> tokens;
  std::map<uint64_t, v1::TokenEvent> finish;
  v1::SessionReply last;
  int replies = 0;
};

std::vector<int32_t> Greedy(const std::vector<int32_t>& prompt, int64_t count) {
  static Harness harness(SmallOptions());
  return harness.Greedy(prompt, count);
}

TEST_CASE("configure, submit, read tokens step by step, close") {
  Worker worker;
  v1::WorkerReady ready;
  REQUIRE(worker.Configure(Worker::Request(), &ready).ok());
  CHECK(ready.kv_blocks() == 400);
  CHECK(ready.block_tokens() == 4);
  CHECK(ready.kernel_path() == "reference");
  CHECK(ready.startup_size() == 4);
  CHECK(worker.service->plan_epoch() == 1);
  CHECK(worker.service->load().steps() == 0);  // warming up does not count

  Client client(&worker);
  REQUIRE(client.Credit(100));
  for (uint64_t id = 1; id <= 5; ++id) {
    REQUIRE(client.Submit(MakeSubmit(id, Prompt(10 + id, id), 12)));
  }
  client.ReadUntilFinished(5);
  for (uint64_t id = 1; id <= 5; ++id) {
    CHECK(client.tokens[id] == Greedy(Prompt(10 + id, id), 12));
    CHECK(client.finish[id].finish() == v1::FINISH_REASON_LENGTH);
  }
  CHECK(client.last.fence().plan_epoch() == 1);
  CHECK(client.last.fence().worker_incarnation() == kIncarnation);
  CHECK(client.last.load().kv_blocks_total() == 400);
  client.stream->WritesDone();
  CHECK(client.stream->Finish().ok());
}

TEST_CASE("without credit the engine pauses; cancels act all the same; credit resumes it") {
  Worker worker;
  REQUIRE(worker.Configure(Worker::Request()).ok());
  Client client(&worker);
  REQUIRE(client.Credit(3));
  REQUIRE(client.Submit(MakeSubmit(1, Prompt(5, 1), 100)));
  REQUIRE(client.Submit(MakeSubmit(2, Prompt(5, 2), 100)));
  REQUIRE(Eventually([&] { return worker.service->load().steps() == 3; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  CHECK(worker.service->load().steps() == 3);
  const int used = worker.service->load().kv_blocks_used();
  REQUIRE(client.Cancel(1));
  REQUIRE(Eventually([&] { return worker.service->load().kv_blocks_used() < used; }));
  REQUIRE(client.Credit(200));
  client.ReadUntilFinished(2);
  CHECK(client.finish[1].finish() == v1::FINISH_REASON_CANCELLED);
  CHECK(client.tokens[1].size() < 5);
  CHECK(client.tokens[2] == Greedy(Prompt(5, 2), 100));
}

TEST_CASE("a session that gives no credit for too long is closed and everything is freed") {
  Worker worker("", 30);
  REQUIRE(worker.Configure(Worker::Request()).ok());
  Client client(&worker);
  REQUIRE(client.Credit(2));
  REQUIRE(client.Submit(MakeSubmit(1, Prompt(5, 1), 100)));
  REQUIRE(Eventually([&] { return worker.service->load().steps() == 2; }));
  // The engine looks at the clock when it ticks; each look after the first is 31 seconds later.
  std::atomic<bool> stop = false;
  std::thread time([&] {
    while (!stop) {
      worker.clock_seconds = worker.clock_seconds + 31;
      client.Cancel(999);  // unknown: does nothing but wake the engine
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (worker.service->load().kv_blocks_used() == 0) break;
    }
  });
  CHECK(Eventually([&] { return worker.service->load().kv_blocks_used() == 0; }));
  stop = true;
  time.join();
  v1::SessionReply reply;
  while (client.stream->Read(&reply)) {
  }
  CHECK(client.stream->Finish().error_code() == grpc::StatusCode::DEADLINE_EXCEEDED);
}

TEST_CASE("the end of a session ends its sequences") {
  Worker worker;
  worker.step_milliseconds = 5;
  REQUIRE(worker.Configure(Worker::Request()).ok());
  auto client = std::make_unique<Client>(&worker);
  REQUIRE(client->Credit(1000));
  for (uint64_t id = 1; id <= 20; ++id) client->Submit(MakeSubmit(id, Prompt(9, id), 300));
  REQUIRE(Eventually([&] { return worker.service->load().kv_blocks_used() > 0; }));
  SECTION("cancelled") { client->context.TryCancel(); }
  SECTION("closed") { client->stream->WritesDone(); }
  REQUIRE(Eventually([&] { return worker.service->load().kv_blocks_used() == 0; }));
  CHECK(worker.service->load().waiting() == 0);
  const auto steps = worker.service->load().steps();
  CHECK(steps < 200);
  v1::SessionReply reply;
  while (client->stream->Read(&reply)) {
  }
  client->stream->Finish();
  Client next(&worker);
  REQUIRE(next.Credit(100));
  REQUIRE(next.Submit(MakeSubmit(1, Prompt(6, 6), 4)));
  next.ReadUntilFinished(1);
  CHECK(next.tokens[1] == Greedy(Prompt(6, 6), 4));
}

TEST_CASE("a newer session replaces the older one") {
  Worker worker;
  REQUIRE(worker.Configure(Worker::Request()).ok());
  Client first(&worker);
  REQUIRE(first.Credit(1));
  REQUIRE(first.Submit(MakeSubmit(1, Prompt(5, 1), 300)));
  REQUIRE(Eventually([&] { return worker.service->load().steps() == 1; }));
  Client second(&worker);
  REQUIRE(second.Credit(100));
  REQUIRE(second.Submit(MakeSubmit(1, Prompt(5, 2), 3)));  // same id: another session's
  second.ReadUntilFinished(1);
  CHECK(second.tokens[1] == Greedy(Prompt(5, 2), 3));
  v1::SessionReply reply;
  while (first.stream->Read(&reply)) {
  }
  CHECK(first.stream->Finish().error_code() == grpc::StatusCode::ABORTED);
}

TEST_CASE("stale fences are refused by name and not acted on") {
  Worker worker;
  SECTION("before Configure") {
    Client client(&worker);
    v1::SessionReply reply;
    CHECK_FALSE(client.stream->Read(&reply));
    CHECK(client.stream->Finish().error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  }
  SECTION("Configure for another process") {
    v1::ConfigureRequest request = Worker::Request();
    request.mutable_fence()->set_worker_incarnation(5);
    const grpc::Status status = worker.Configure(request);
    CHECK(status.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
    CHECK_THAT(status.error_message(), Catch::Contains("incarnation 5") && Catch::Contains("77"));
    CHECK(worker.loads == 0);
  }
  SECTION("Configure of an older plan, of the same plan, and of the same plan changed") {
    REQUIRE(worker.Configure(Worker::Request(3)).ok());
    const grpc::Status older = worker.Configure(Worker::Request(2));
    CHECK(older.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
    CHECK_THAT(older.error_message(), Catch::Contains("epoch 2") && Catch::Contains("epoch 3"));
    v1::WorkerReady ready;
    CHECK(worker.Configure(Worker::Request(3), &ready).ok());
    CHECK(ready.kv_blocks() == 400);
    CHECK(worker.loads == 1);
    v1::ConfigureRequest changed = Worker::Request(3);
    changed.set_max_sequences(4);
    CHECK(worker.Configure(changed).error_code() == grpc::StatusCode::FAILED_PRECONDITION);
    CHECK(worker.service->plan_epoch() == 3);
  }
  SECTION("a session's messages") {
    REQUIRE(worker.Configure(Worker::Request(2)).ok());
    const uint64_t epoch = GENERATE(1, 3);
    Client client(&worker, epoch);
    client.Credit(10);
    client.Submit(MakeSubmit(1, Prompt(5, 1), 3));
    v1::SessionReply reply;
    CHECK_FALSE(client.stream->Read(&reply));
    const grpc::Status status = client.stream->Finish();
    CHECK(status.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
    CHECK_THAT(status.error_message(), Catch::Contains("epoch"));
    CHECK(worker.service->load().steps() == 0);
  }
}

TEST_CASE("a newer plan epoch replaces the engine; its session ends with ABORTED") {
  Worker worker;
  worker.step_milliseconds = 2;
  REQUIRE(worker.Configure(Worker::Request(1)).ok());
  Client client(&worker);
  REQUIRE(client.Credit(1000));
  REQUIRE(client.Submit(MakeSubmit(1, Prompt(5, 1), 300)));
  REQUIRE(Eventually([&] { return worker.service->load().steps() > 2; }));
  REQUIRE(worker.Configure(Worker::Request(2)).ok());
  CHECK(worker.loads == 1);  // the same share: it stays in memory
  v1::SessionReply reply;
  while (client.stream->Read(&reply)) {
  }
  const grpc::Status status = client.stream->Finish();
  CHECK(status.error_code() == grpc::StatusCode::ABORTED);
  CHECK_THAT(status.error_message(), Catch::Contains("epoch 2"));
  Client next(&worker, 2);
  REQUIRE(next.Credit(10));
  REQUIRE(next.Submit(MakeSubmit(1, Prompt(5, 1), 3)));
  next.ReadUntilFinished(1);
}

TEST_CASE("a plan epoch with another share or other limits reads the weights again") {
  Worker worker;
  REQUIRE(worker.Configure(Worker::Request(1)).ok());
  v1::ConfigureRequest request = Worker::Request(2);
  request.set_max_waiting(7);
  request.set_replica("r9");
  request.set_role(v1::REPLICA_ROLE_DECODE);
  REQUIRE(worker.Configure(request).ok());
  CHECK(worker.loads == 1);
  request = Worker::Request(3);
  request.set_kv_cache_bytes(300 * 32);
  v1::WorkerReady ready;
  REQUIRE(worker.Configure(request, &ready).ok());
  CHECK(worker.loads == 2);
  CHECK(ready.kv_blocks() == 300);
}

TEST_CASE("memory or threads that end while loading fail the plan epoch, not the worker") {
  Worker worker;
  worker.load_throws = true;
  const grpc::Status status = worker.Configure(Worker::Request(3));
  CHECK(status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK_THAT(status.error_message(), Catch::Contains("plan epoch 3: std::bad_alloc; give"));
  worker.load_throws = false;
  CHECK(worker.Configure(Worker::Request(3)).ok());
}

TEST_CASE("what cannot be configured is refused with its reason, and the worker stays usable") {
  Worker worker;
  const auto refused = [&](const v1::ConfigureRequest& request, grpc::StatusCode code,
                           const std::string& word) {
    const grpc::Status status = worker.Configure(request);
    CHECK(status.error_code() == code);
    CHECK_THAT(status.error_message(), Catch::Contains(word));
    CHECK(worker.service->plan_epoch() == 0);
  };
  v1::ConfigureRequest request = Worker::Request();
  request.set_model_fingerprint("ef01");
  refused(request, grpc::StatusCode::FAILED_PRECONDITION, "ef01");
  request = Worker::Request();
  request.mutable_share()->mutable_layers()->set_end(1);
  refused(request, grpc::StatusCode::INVALID_ARGUMENT, "layers 0 to 1 of 2");
  request = Worker::Request();
  request.set_kv_cache_bytes(10);
  refused(request, grpc::StatusCode::RESOURCE_EXHAUSTED,
          "has 10 bytes, but one block of 4 tokens takes 32 (");
  refused(request, grpc::StatusCode::RESOURCE_EXHAUSTED, "raise --kv-cache-memory-bytes");
  request.set_kv_cache_bytes_planned(true);
  refused(request, grpc::StatusCode::RESOURCE_EXHAUSTED,
          "): give it at least 32 in the plan (kv_bytes)");
  request = Worker::Request();
  request.set_kv_cache_bytes(int64_t{1} << 50);
  refused(request, grpc::StatusCode::RESOURCE_EXHAUSTED, "have 1125899906842624 bytes, but ");
  refused(request, grpc::StatusCode::RESOURCE_EXHAUSTED, "lower --kv-cache-memory-bytes");
  request.set_kv_cache_bytes_planned(true);
  refused(request, grpc::StatusCode::RESOURCE_EXHAUSTED, "lower kv_bytes in the plan, or raise");
  request = Worker::Request();
  request.set_max_sequences(-1);
  refused(request, grpc::StatusCode::INVALID_ARGUMENT, "max_sequences");
  request = Worker::Request();
  request.add_eos_token_ids(1 << 20);
  refused(request, grpc::StatusCode::INVALID_ARGUMENT, "eos_token_ids names the token 1048576");
  request = Worker::Request();
  request.set_kv_dtype(v1::DATA_TYPE_FLOAT16);
  refused(request, grpc::StatusCode::INVALID_ARGUMENT, "KV cannot be kept as float16");
  worker.load_error = absl::DataLossError("tensor x is cut off");
  refused(Worker::Request(), grpc::StatusCode::DATA_LOSS, "tensor x");
  worker.load_error = absl::OkStatus();
  CHECK(worker.Configure(Worker::Request()).ok());  // the epoch of a failed one may come again
}

TEST_CASE("a worker that ends waits for what runs, refuses what is new, and says so at once") {
  Worker worker;
  worker.step_milliseconds = 5;
  REQUIRE(worker.Configure(Worker::Request()).ok());
  Client client(&worker);
  REQUIRE(client.Credit(1000));
  REQUIRE(client.Submit(MakeSubmit(1, Prompt(5, 1), 100)));
  REQUIRE(Eventually([&] { return worker.service->load().steps() > 0; }));
  CHECK_FALSE(worker.service->load().draining());
  std::thread ending([&] { worker.service->Shutdown(/*drain_seconds=*/60); });
  CHECK(Eventually([&] { return worker.service->load().draining(); }));
  REQUIRE(client.Submit(MakeSubmit(2, Prompt(5, 2), 20)));
  client.ReadUntilFinished(1);  // the refusal comes first
  CHECK(client.finish[2].error_code() == static_cast<int>(absl::StatusCode::kUnavailable));
  CHECK(client.last.load().draining());
  client.ReadUntilFinished(1);
  CHECK(client.finish[1].finish() == v1::FINISH_REASON_LENGTH);
  CHECK(client.tokens[1] == Greedy(Prompt(5, 1), 100));
  ending.join();
  CHECK(worker.service->load().draining());
}

TEST_CASE("a coordinator that has led before configures nothing, and opens no session") {
  Worker worker;
  const auto configure = [&](uint64_t epoch, const std::string& term) {
    v1::ConfigureRequest request = Worker::Request();
    request.mutable_fence()->set_plan_epoch(epoch);
    grpc::ClientContext context;
    if (!term.empty()) context.AddMetadata(std::string(kLeaderTermKey), term);
    auto reader = worker.stub->Configure(&context, request);
    v1::ConfigureProgress progress;
    while (reader->Read(&progress)) {
    }
    return reader->Finish();
  };
  CHECK(configure(1, "").ok());
  CHECK(configure(2, "5").ok());
  CHECK(configure(3, "5").ok());
  for (const char* term : {"4", "", "-1", "six"}) {
    const grpc::Status refused = configure(9, term);
    CHECK(refused.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
    CHECK_THAT(refused.error_message(),
               Catch::Matchers::Contains("obeys the coordinator of term 5"));
  }
  CHECK(worker.service->plan_epoch() == 3);
  Client client(&worker);  // of no term
  v1::SessionReply nothing;
  CHECK_FALSE(client.stream->Read(&nothing));
  CHECK(client.stream->Finish().error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  CHECK(configure(4, "18446744073709551615").ok());
}

TEST_CASE("with a cluster token every call of the service needs it") {
  Worker worker(kToken);
  CHECK(worker.Configure(Worker::Request()).error_code() == grpc::StatusCode::UNAUTHENTICATED);
  CHECK(worker.Configure(Worker::Request(), nullptr, "another-token-of-sixteen").error_code() ==
        grpc::StatusCode::UNAUTHENTICATED);
  CHECK(worker.Configure(Worker::Request(), nullptr, kToken).ok());
  Client client(&worker);
  v1::SessionReply nothing;
  CHECK_FALSE(client.stream->Read(&nothing));
  CHECK(client.stream->Finish().error_code() == grpc::StatusCode::UNAUTHENTICATED);
  grpc::ClientContext profile;
  v1::ProfileReply profiled;
  CHECK(worker.stub->Profile(&profile, {}, &profiled).error_code() ==
        grpc::StatusCode::UNAUTHENTICATED);
}

TEST_CASE("Profile measures an idle worker, and refuses one that serves") {
  Worker worker;
  v1::ProfileRequest request;
  request.mutable_fence()->set_worker_incarnation(kIncarnation);
  v1::ProfileReply rates;
  {
    grpc::ClientContext context;
    const grpc::Status status = worker.stub->Profile(&context, request, &rates);
    INFO(status.error_message());
    REQUIRE(status.ok());
  }
  CHECK(rates.memory_read_bytes_per_second() > 1e6);
  CHECK(rates.float32_flops_per_second() > 1e5);
  CHECK(rates.bfloat16_flops_per_second() > 1e5);
  CHECK(rates.int8_flops_per_second() > 1e5);
  CHECK(rates.kernel_path() == "reference");
  REQUIRE(rates.products_size() > 0);
  CHECK(rates.products(0).weights() == "bfloat16");
  CHECK(rates.products(0).rows() == 1);
  CHECK(rates.products(0).read_bytes_per_second() > 1e4);
  REQUIRE(worker.Configure(Worker::Request()).ok());
  grpc::ClientContext context;
  const grpc::Status refused = worker.stub->Profile(&context, request, &rates);
  CHECK(refused.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  request.set_while_serving(true);
  grpc::ClientContext serving_context;
  CHECK(worker.stub->Profile(&serving_context, request, &rates).ok());
  grpc::ClientContext stale_context;
  request.mutable_fence()->set_worker_incarnation(kIncarnation + 1);
  CHECK_FALSE(worker.stub->Profile(&stale_context, request, &rates).ok());
}

TEST_CASE("an answer is found by id and owner for a minute after its session broke") {
  Worker worker(kToken);
  REQUIRE(worker.Configure(Worker::Request(), nullptr, kToken).ok());
  v1::Submit submit = MakeSubmit(1, Prompt(5, 1), 100);
  submit.set_request_id("cmpl-1");
  submit.set_owner("me");
  v1::KeptAnswer kept;
  const auto find = [&](const std::string& owner, const std::string& token = kToken) {
    grpc::ClientContext context;
    if (!token.empty()) context.AddMetadata(std::string(kClusterTokenKey), token);
    v1::FindKeptRequest request;
    request.set_request_id("cmpl-1");
    request.set_owner(owner);
    return worker.stub->FindKept(&context, request, &kept).error_code();
  };
  {
    grpc::ClientContext context;
    context.AddMetadata(std::string(kClusterTokenKey), kToken);
    const auto stream = worker.stub->Session(&context);
    v1::SessionRequest request;
    *request.mutable_fence() = Worker::Fence();
    request.mutable_credit()->set_messages(4);  // a token each
    REQUIRE(stream->Write(request));
    *request.mutable_submit() = submit;
    REQUIRE(stream->Write(request));
    v1::SessionReply reply;
    for (int i = 0; i < 4; ++i) REQUIRE(stream->Read(&reply));
    context.TryCancel();
  }
  REQUIRE(Eventually([&] { return worker.service->load().running() == 0; }));
  // Under another plan too.
  REQUIRE(worker.Configure(Worker::Request(2), nullptr, kToken).ok());
  REQUIRE(find("me") == grpc::StatusCode::OK);
  CHECK(kept.submit().prompt_token_ids_size() == 5);
  CHECK(std::vector<int32_t>(kept.output_token_ids().begin(), kept.output_token_ids().end()) ==
        Greedy(Prompt(5, 1), 4));
  CHECK(find("you") == grpc::StatusCode::NOT_FOUND);
  CHECK(find("") == grpc::StatusCode::NOT_FOUND);
  CHECK(find("me", "") == grpc::StatusCode::UNAUTHENTICATED);
  worker.clock_seconds = worker.clock_seconds + 61;
  CHECK(find("me") == grpc::StatusCode::NOT_FOUND);
}

TEST_CASE("health says SERVING from the end of Configure to the shutdown") {
  Worker worker;
  const std::string name = "tessera.v1.Worker";
  const auto health = [&] {  // HealthCheckRequest.service = 1; HealthCheckResponse.status = 1
    std::string reply;
    const std::string request = std::string("\x0a") + static_cast<char>(name.size()) + name;
    REQUIRE(CallRaw(worker.channel, "/grpc.health.v1.Health/Check", request, &reply).ok());
    REQUIRE(reply.size() == 2);
    return static_cast<int>(reply[1]);
  };
  CHECK(health() == 2);  // NOT_SERVING
  REQUIRE(worker.Configure(Worker::Request()).ok());
  CHECK(health() == 1);  // SERVING
  worker.service->Shutdown(0);
  CHECK(health() == 2);
}

TEST_CASE("a worker that ends as soon as it has started ends in order") {
  for (int round = 0; round < 100; ++round) Worker worker;
}

TEST_CASE("a connection that never speaks is closed, and calls go on meanwhile") {
  Worker worker;
  auto silent = kernels::ConnectLink(*kernels::ParseLinkAddress(worker.server->address()), 5);
  REQUIRE(silent.ok());
  REQUIRE(worker.Configure(Worker::Request()).ok());
  CHECK_FALSE((*silent)->PeerClosed());
  pollfd waited = {.fd = (*silent)->socket(), .events = POLLRDHUP, .revents = 0};
  CHECK(poll(&waited, 1, 30'000) == 1);
}

TEST_CASE("an address that others can reach needs a token") {
  Worker worker;
  const auto open = WorkerServer::Start("0.0.0.0:0", false, worker.service.get());
  REQUIRE_FALSE(open.ok());
  CHECK_THAT(std::string(open.status().message()), Catch::Contains("--cluster-token-file"));
}

}  // namespace
}  // namespace tessera::worker
