#include "deploy/rehearsal/request_player.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <utility>

#include "proto/inference.grpc.pb.h"

namespace tessera::deploy {
namespace {

using Clock = std::chrono::steady_clock;

// A connection carries some thousand streams well.
constexpr int kChannels = 8;
// Between two looks at whether to stop.
constexpr double kLookSeconds = 0.1;

uint64_t Mix(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}

// One request on its way: started, then read until it ends, then finished.
struct Stream {
  enum class Stage { kStarting, kReading, kEnding };

  size_t number = 0;
  Stage stage = Stage::kStarting;
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientAsyncReader<v1::CompletionChunk>> reader;
  v1::CompletionChunk chunk;
  grpc::Status status;
};

class Player {
 public:
  Player(const PlayOptions& options, const std::vector<scheduler::SimulatedRequest>& requests)
      : options_(options), requests_(requests), began_(Clock::now()) {
    play_.requests.resize(requests.size());
    for (int i = 0; i < kChannels; ++i) {
      grpc::ChannelArguments arguments;
      arguments.SetInt("tessera.rehearsal.channel", i);  // else they would share a connection
      stubs_.push_back(v1::Inference::NewStub(grpc::CreateCustomChannel(
          options.coordinator, grpc::InsecureChannelCredentials(), arguments)));
    }
  }

  Play Run() {
    size_t next = 0;
    while ((next < requests_.size() || !open_.empty()) && !Over(next)) {
      while (next < requests_.size() && Now() >= DueSeconds(next)) Send(next++);
      const double look = Now() + kLookSeconds;
      Take(next < requests_.size() ? std::min(DueSeconds(next), look) : look);
    }
    play_.seconds = Now();
    CancelOpen();
    return std::move(play_);
  }

 private:
  double Now() const { return std::chrono::duration<double>(Clock::now() - began_).count(); }
  double DueSeconds(size_t number) const {
    return requests_[number].arrival_seconds / options_.speed;
  }

  bool Over(size_t next) {
    play_.stopped = options_.stop && options_.stop();
    if (play_.stopped) return true;
    return next == requests_.size() &&
           Now() > DueSeconds(next - 1) + options_.patience_seconds;
  }

  v1::CompletionRequest Message(size_t number) const {
    const scheduler::SimulatedRequest& request = requests_[number];
    v1::CompletionRequest message;
    auto& ids = *message.mutable_tokens()->mutable_ids();
    ids.Reserve(static_cast<int>(request.prompt_tokens));
    for (int64_t i = 0; i < request.prompt_tokens; ++i) {
      const uint64_t whose = i < request.cached_prompt_tokens ? 0 : number + 1;
      const uint64_t drawn = Mix(whose << 32 ^ static_cast<uint64_t>(i));
      ids.Add(static_cast<int32_t>(drawn % static_cast<uint64_t>(options_.vocabulary)));
    }
    v1::GenerationOptions& generation = *message.mutable_options();
    generation.set_max_tokens(static_cast<int32_t>(request.output_tokens));
    generation.set_ignore_eos(true);
    generation.set_seed(number + 1);
    return message;
  }

  void Send(size_t number) {
    Stream* const stream = (open_[number] = std::make_unique<Stream>()).get();
    stream->number = number;
    play_.requests[number].sent_seconds = Now();
    stream->reader = stubs_[number % stubs_.size()]->AsyncStreamComplete(
        &stream->context, Message(number), &queue_, stream);
    play_.most_streams = std::max(play_.most_streams, static_cast<int64_t>(open_.size()));
  }

  // What comes until then.
  void Take(double until_seconds) {
    const auto wait = std::chrono::duration<double>(std::max(0.0, until_seconds - Now()));
    const auto deadline = std::chrono::system_clock::now() +
                          std::chrono::duration_cast<std::chrono::system_clock::duration>(wait);
    void* tag = nullptr;
    bool ok = false;
    if (queue_.AsyncNext(&tag, &ok, deadline) == grpc::CompletionQueue::GOT_EVENT)
      Advance(static_cast<Stream*>(tag), ok);
  }

  void Advance(Stream* stream, bool ok) {
    if (stream->stage == Stream::Stage::kEnding) return End(stream);
    if (stream->stage == Stream::Stage::kReading && ok) Note(stream->number, stream->chunk);
    if (ok) {
      stream->stage = Stream::Stage::kReading;
      stream->reader->Read(&stream->chunk, stream);
    } else {
      stream->stage = Stream::Stage::kEnding;
      stream->reader->Finish(&stream->status, stream);
    }
  }

  void Note(size_t number, const v1::CompletionChunk& chunk) {
    const int64_t tokens = chunk.choice().token_ids_size();
    if (tokens == 0) return;
    PlayedRequest& played = play_.requests[number];
    const double now = Now();
    if (played.tokens == 0) {
      played.first_token_seconds = now;
    } else if (now - played.last_token_seconds > played.longest_gap_seconds) {
      played.longest_gap_seconds = now - played.last_token_seconds;
      played.longest_gap_end_seconds = now;
    }
    played.last_token_seconds = now;
    played.tokens += tokens;
  }

  void End(Stream* stream) {
    PlayedRequest& played = play_.requests[stream->number];
    if (!stream->status.ok() && !cancelling_) played.error = stream->status.error_message();
    played.finished =
        stream->status.ok() && played.tokens == requests_[stream->number].output_tokens;
    open_.erase(stream->number);
  }

  // Ends what is left, which stays unfinished.
  void CancelOpen() {
    cancelling_ = true;
    for (auto& [number, stream] : open_) stream->context.TryCancel();
    void* tag = nullptr;
    bool ok = false;
    while (!open_.empty() && queue_.Next(&tag, &ok)) Advance(static_cast<Stream*>(tag), ok);
  }

  const PlayOptions& options_;
  const std::vector<scheduler::SimulatedRequest>& requests_;
  const Clock::time_point began_;
  std::vector<std::unique_ptr<v1::Inference::Stub>> stubs_;
  grpc::CompletionQueue queue_;
  std::map<size_t, std::unique_ptr<Stream>> open_;  // by number
  bool cancelling_ = false;
  Play play_;
};

}  // namespace

Play PlayRequests(const PlayOptions& options,
                  const std::vector<scheduler::SimulatedRequest>& requests) {
  return Player(options, requests).Run();
}

}  // namespace tessera::deploy
