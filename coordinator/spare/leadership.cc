#include "coordinator/spare/leadership.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "third_party/spdlog/log.h"

namespace tessera::coordinator {
namespace {

// The last: of a leader whose term is above the revision of its key.
constexpr char kLeaderKey[] = "leader", kKeptKeys[] = "kept/", kTermKey[] = "term";

ElectionOptions WithKey(ElectionOptions options, const std::string& prefix) {
  options.key = prefix + kLeaderKey;
  return options;
}

}  // namespace

Leadership::Leadership(LeadershipOptions options, std::unique_ptr<LeaderStore> store)
    : options_(std::move(options)),
      store_(std::move(store)),
      election_(WithKey(options_.election, options_.prefix), *store_),
      thread_([this] { Run(); }) {}

Leadership::~Leadership() { Resign(); }

Leadership::Standing Leadership::standing() const {
  std::lock_guard lock(mutex_);
  return standing_;
}

uint64_t Leadership::term() const {
  std::lock_guard lock(mutex_);
  return term_;
}

void Leadership::HearTerm(uint64_t term) {
  if (term >= uint64_t{1} << 63) return;  // no store counts so far, and one more must be there
  std::lock_guard lock(mutex_);
  heard_term_ = std::max(heard_term_, term);
}

std::string Leadership::leader() const {
  std::lock_guard lock(mutex_);
  return leader_;
}

std::string Leadership::trouble() const {
  std::lock_guard lock(mutex_);
  return trouble_;
}

Leadership::Values Leadership::kept() const {
  std::lock_guard lock(mutex_);
  return kept_;
}

void Leadership::Keep(Values values) {
  std::lock_guard lock(mutex_);
  keeps_ = true;
  wanted_ = std::move(values);
}

void Leadership::Resign() {
  {
    std::lock_guard lock(mutex_);
    if (stopping_) return;
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
  election_.Resign();
}

void Leadership::Run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    Step();
    lock.lock();
    wake_.wait_for(lock, std::chrono::duration<double>(options_.step_seconds),
                   [this] { return stopping_; });
  }
}

void Leadership::Step() {
  {
    std::lock_guard lock(mutex_);
    election_.HearTerm(heard_term_);
  }
  Standing standing = election_.Step(options_.now_seconds());
  const bool first = standing == Standing::kLeads && this->standing() == Standing::kSpare;
  if (first && !(ReadTerm() && ReadKept()))
    standing = Standing::kSpare;  // it leads once it has read both
  std::optional<Values> wanted;
  bool news = false;
  {
    std::lock_guard lock(mutex_);
    standing_ = standing;
    term_ = election_.term();
    leader_ = election_.leader();
    news = std::exchange(trouble_, election_.trouble()) != election_.trouble();
    if (first) kept_ = stored_;
    if (standing == Standing::kLeads && keeps_) wanted = wanted_;
  }
  if (news && !election_.trouble().empty()) {
    Logger("spare").warn("{}: {}", election_.trouble(),
                         standing == Standing::kLeads
                             ? "this coordinator leads on, and no spare takes over meanwhile"
                             : "this coordinator stays a spare meanwhile");
  } else if (news) {
    Logger("spare").info("the store answers again");
  }
  if (standing == Standing::kLeads) NoteTerm();
  if (!wanted.has_value()) return;
  // Another one may have led, and kept its own, since this one read.
  if (read_created_ != election_.created() && !ReadKept()) return;
  const std::string trouble(WriteKept(*wanted).message());
  if (std::exchange(keep_trouble_, trouble) != trouble && !trouble.empty())
    Logger("spare").warn("{}: a next leader would not find the plan in force", trouble);
}

bool Leadership::ReadTerm() {
  const std::string key = options_.prefix + kTermKey;
  const auto noted = store_->Read(key);
  if (!noted.ok()) return false;
  if (const auto before = noted->find(key); before != noted->end())
    election_.RiseAbove(std::strtoull(before->second.value.c_str(), nullptr, 10));
  return true;
}

bool Leadership::ReadKept() {
  const std::string prefix = options_.prefix + kKeptKeys;
  auto found = store_->Read(prefix);
  if (!found.ok()) return false;
  stored_.clear();
  for (auto& [key, value] : *found) stored_[key.substr(prefix.size())] = std::move(value.value);
  read_created_ = election_.created();
  return true;
}

// Where the store has lost what it had: else the next leader's revision is above this one's term.
void Leadership::NoteTerm() {
  const uint64_t term = election_.term();
  if (term == election_.created() || term == noted_term_) return;
  const auto written = store_->WriteWhile(options_.prefix + kLeaderKey, election_.created(),
                                          options_.prefix + kTermKey, std::to_string(term));
  if (written.ok() && *written) noted_term_ = term;
}

absl::Status Leadership::WriteKept(const Values& wanted) {
  const std::string prefix = options_.prefix + kKeptKeys, guard = options_.prefix + kLeaderKey;
  Values changed = wanted;
  for (const auto& [key, value] : stored_) {
    const auto found = changed.find(key);
    if (found != changed.end() && found->second == value) changed.erase(found);
  }
  std::vector<std::string> gone;
  for (const auto& [key, value] : stored_) {
    if (!wanted.contains(key)) gone.push_back(key);
  }
  // Where one is not written the election hears of it, or the next step tries again.
  for (const auto& [key, value] : changed) {
    const auto written = store_->WriteWhile(guard, election_.created(), prefix + key, value);
    if (!written.ok() || !*written) return written.status();
    stored_[key] = value;
  }
  for (const std::string& key : gone) {
    const auto written = store_->WriteWhile(guard, election_.created(), prefix + key, std::nullopt);
    if (!written.ok() || !*written) return written.status();
    stored_.erase(key);
  }
  return absl::OkStatus();
}

}  // namespace tessera::coordinator
