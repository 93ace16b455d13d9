#include "deploy/plan_watch.h"

#include <csignal>
#include <cstdio>

namespace tessera::deploy {
namespace {

constexpr double kSilentSeconds = 2;     // of a search that needs no word
constexpr double kBetweenReports = 0.5;  // seconds

volatile std::sig_atomic_t interrupted = 0;

void OnInterrupt(int signal) {
  interrupted = 1;
  std::signal(signal, SIG_DFL);
}

}  // namespace

PlanWatch::PlanWatch(double time_limit_seconds)
    : begin_(std::chrono::steady_clock::now()), time_limit_seconds_(time_limit_seconds) {
  interrupted = 0;
  std::signal(SIGINT, OnInterrupt);
}

PlanWatch::~PlanWatch() { std::signal(SIGINT, SIG_DFL); }

double PlanWatch::Seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

scheduler::SearchWatch PlanWatch::ForSearch() {
  scheduler::SearchWatch watch;
  watch.stop = [this] { return Stop(); };
  watch.progress = [this](const std::string& what) { Report(what); };
  return watch;
}

bool PlanWatch::Stop() {
  const bool late = time_limit_seconds_ > 0 && Seconds() >= time_limit_seconds_;
  if (interrupted == 0 && !late) return false;
  if (!said_stopping_) {
    std::fprintf(stderr, "%s: taking the best so far\n", late ? "time limit" : "interrupted");
    said_stopping_ = true;
  }
  return true;
}

void PlanWatch::Report(const std::string& what) {
  const double now = Seconds();
  if (now < kSilentSeconds || now - last_report_seconds_ < kBetweenReports) return;
  last_report_seconds_ = now;
  std::fprintf(stderr, "planning, %.0f s: %s\n", now, what.c_str());
}

}  // namespace tessera::deploy
