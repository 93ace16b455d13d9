#include "tests/bench/gpu/served_rates.h"

#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "deploy/processes/child_process.h"
#include "tests/coordinator/http_client.h"
#include "third_party/absl/str_cat.h"

namespace tessera::bench {
namespace {

namespace fs = std::filesystem;

constexpr double kStopSeconds = 30;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string Read(const fs::path& file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

struct StreamTimes {
  double sent = 0;
  std::vector<double> tokens;  // when each came
  std::string problem;         // empty: none
};

std::string Body(const ServedOptions& options, int stream) {
  std::string ids;
  for (int64_t i = 0; i < options.prompt_tokens; ++i) {
    ids += StrCat(i == 0 ? "" : ",", 10 + (stream * 7 + i * i) % 400);
  }
  return StrCat(R"({"model":"model","stream":true,"ignore_eos":true,"temperature":0,"max_tokens":)",
                options.output_tokens, R"(,"prompt":[)", ids, "]}");
}

// Sends one request and notes when each event of its answer comes.
void ReadStream(uint16_t port, const std::string& body, StreamTimes* times) {
  constexpr std::string_view kEvent = "data: {";
  coordinator::HttpClient client(port);
  times->sent = Now();
  if (!client.SendRequest("POST", "/v1/completions", body)) {
    times->problem = "the request could not be sent";
    return;
  }
  std::string text;
  size_t searched = 0;
  while (text.find("data: [DONE]", searched) == std::string::npos) {
    char bytes[16384];
    const ssize_t got = ::recv(client.socket(), bytes, sizeof bytes, 0);
    if (got <= 0) {
      times->problem = StrCat("an answer ended early: ", text.substr(0, 300));
      return;
    }
    text.append(bytes, static_cast<size_t>(got));
    const double now = Now();
    for (size_t at; (at = text.find(kEvent, searched)) != std::string::npos;) {
      times->tokens.push_back(now);
      searched = at + kEvent.size();
    }
  }
}

absl::Status WaitUntilReady(uint16_t port, deploy::ChildProcess& up, double until,
                            const std::string& logs) {
  while (Now() < until) {
    coordinator::HttpClient client(port);
    if (client.SendRequest("GET", "/ready", "") && client.Receive().status == 200) {
      return absl::OkStatus();
    }
    if (const auto how = up.Ended(); how.has_value()) {
      return absl::InternalError(StrCat("tessera up ", *how, "; logs are in ", logs));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return absl::DeadlineExceededError(StrCat("the daemon was not ready; logs are in ", logs));
}

absl::StatusOr<uint16_t> WaitForPort(const fs::path& file, deploy::ChildProcess& up, double until,
                                     const std::string& logs) {
  while (Now() < until && !up.Ended().has_value()) {
    unsigned port = 0;
    if (std::sscanf(Read(file).c_str(), "http=%u grpc=", &port) == 1) {
      return static_cast<uint16_t>(port);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return absl::InternalError(StrCat("tessera up did not start; logs are in ", logs));
}

// "weights: 16.060 GB loaded in 5.000 s, 3.21 GB/s" of a worker's log.
double LoadRate(const fs::path& logs) {
  for (const auto& entry : fs::directory_iterator(logs)) {
    const std::string text = Read(entry.path());
    const size_t at = text.find(" GB loaded in ");
    double seconds = 0;
    double rate = 0;
    if (at != std::string::npos &&
        std::sscanf(text.c_str() + at, " GB loaded in %lf s, %lf GB/s", &seconds, &rate) == 2) {
      return rate;
    }
  }
  return 0;
}

absl::Status Summarise(const std::vector<StreamTimes>& streams, ServedRates* rates) {
  std::vector<double> first, gaps;
  double begin = 0;
  double end = streams[0].tokens.empty() ? 0 : streams[0].tokens.back();
  for (const StreamTimes& s : streams) {
    if (!s.problem.empty()) return absl::InternalError(s.problem);
    if (s.tokens.size() < 2) return absl::InternalError("an answer had less than two tokens");
    first.push_back(s.tokens.front() - s.sent);
    for (size_t i = 1; i < s.tokens.size(); ++i) gaps.push_back(s.tokens[i] - s.tokens[i - 1]);
    begin = std::max(begin, s.tokens.front());
    end = std::min(end, s.tokens.back());
  }
  rates->first_token_seconds = Median(first);
  rates->seconds_per_token = Median(gaps);
  int64_t tokens = 0;
  for (const StreamTimes& s : streams) {
    tokens += std::count_if(s.tokens.begin(), s.tokens.end(),
                            [&](double at) { return at > begin && at <= end; });
  }
  if (end <= begin) {
    return absl::InternalError(
        "the first answer had ended when the last began: ask for more output tokens");
  }
  rates->tokens_per_second = static_cast<double>(tokens) / (end - begin);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ServedRates> MeasureServed(const ServedOptions& options) {
  const double begin = Now();
  const double until = begin + options.ready_seconds;
  const auto program = deploy::FindProgram(options.programs, "tessera");
  if (!program.ok()) return program.status();
  std::error_code ignored;
  fs::remove_all(options.logs, ignored);
  fs::create_directories(options.logs, ignored);
  auto up = deploy::ChildProcess::Start(
      "tessera up",
      {*program, "up", options.model, "--devices", options.device, "--port", "0", "--grpc-port",
       "0", "--served-model-name", "model", "--log-dir", options.logs, "--ready-timeout",
       StrCat(static_cast<int64_t>(options.ready_seconds))},
      options.logs + "/up.log");
  if (!up.ok()) return up.status();
  const auto port = WaitForPort(options.logs + "/ports", *up, until, options.logs);
  if (!port.ok()) return port.status();
  if (absl::Status s = WaitUntilReady(*port, *up, until, options.logs); !s.ok()) return s;
  ServedRates rates;
  rates.ready_seconds = Now() - begin;
  rates.load_gb_per_second = LoadRate(options.logs);

  std::vector<StreamTimes> streams(options.streams);
  std::vector<std::thread> threads;
  for (int i = 0; i < options.streams; ++i) {
    threads.emplace_back([&, i] { ReadStream(*port, Body(options, i), &streams[i]); });
  }
  for (std::thread& thread : threads) thread.join();
  up->Signal(SIGTERM);
  up->WaitFor(kStopSeconds);
  if (absl::Status status = Summarise(streams, &rates); !status.ok()) return status;
  return rates;
}

}  // namespace tessera::bench
