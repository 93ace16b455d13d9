#include "deploy/search_interrupt.h"

#include <csignal>
#include <cstdio>

namespace tessera::deploy {
namespace {

constexpr double kSilentSeconds = 2;     // of a search that needs no word
constexpr double kBetweenReports = 0.5;  // seconds

sigset_t Interrupts() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

SearchInterrupt::SearchInterrupt(double time_limit_seconds)
    : begin_(std::chrono::steady_clock::now()), time_limit_seconds_(time_limit_seconds) {
  const sigset_t interrupts = Interrupts();
  pthread_sigmask(SIG_BLOCK, &interrupts, &mask_before_);
  waiter_ = std::thread([this] { AwaitInterrupts(); });
}

SearchInterrupt::~SearchInterrupt() {
  ends_ = true;
  pthread_kill(waiter_.native_handle(), SIGINT);
  waiter_.join();
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

void SearchInterrupt::AwaitInterrupts() {
  const sigset_t interrupts = Interrupts();
  int signal = 0;
  sigwait(&interrupts, &signal);
  if (ends_) return;
  interrupted_ = true;
  sigwait(&interrupts, &signal);
  if (ends_) return;
  std::signal(SIGINT, SIG_DFL);
  pthread_sigmask(SIG_UNBLOCK, &interrupts, nullptr);
  std::raise(SIGINT);
}

double SearchInterrupt::Seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

scheduler::SearchWatch SearchInterrupt::ForSearch() {
  scheduler::SearchWatch watch;
  watch.stop = [this] { return Stop(); };
  watch.progress = [this](const std::string& what) { Report(what); };
  return watch;
}

bool SearchInterrupt::Stop() {
  const bool late = time_limit_seconds_ > 0 && Seconds() >= time_limit_seconds_;
  if (!interrupted_ && !late) return false;
  if (!said_stopping_) {
    std::fprintf(stderr, "%s: taking the best so far\n", late ? "time limit" : "interrupted");
    said_stopping_ = true;
  }
  return true;
}

void SearchInterrupt::Report(const std::string& what) {
  const double now = Seconds();
  if (now < kSilentSeconds || now - last_report_seconds_ < kBetweenReports) return;
  last_report_seconds_ = now;
  std::fprintf(stderr, "planning, %.0f s: %s\n", now, what.c_str());
}

}  // namespace tessera::deploy
