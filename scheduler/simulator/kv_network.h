// KV on its way between replicas: flows over shared links, each with its max-min fair rate.
//
// Max-min: no flow can go faster without slowing one that is no faster; found by filling all flows
// alike until a link is full, fixing its flows, and going on (Bertsekas and Gallager, "Data
// Networks", 6.5.2). Incast: a link into which more than `incast_threshold` flows come loses
// `incast_seconds_per_byte` for each byte and flow beyond (GenModel's epsilon). Cost: all changes
// of one moment are counted at once; new rates are found for what changed and for the flows that it
// reaches through shared links, and for no others.
//
// Activations of pipelines pass the same links. Their steps are too many to be flows: what they
// take on average (SetBackground) is not there for flows, but for a least part (kMinLeft), and a
// hop gets what one flow more would get beside the flows that there are. Thread rule: one thread.
// Units: bytes, seconds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::scheduler {

struct SharedLink {
  std::string name;
  double bytes_per_second = 0;
  double incast_threshold = 1e9;
  double incast_seconds_per_byte = 0;
};

// What one stage of a prefill replica sends to one stage of a decode replica.
struct KvStream {
  double bytes_per_token = 0;
  double latency_seconds = 0;
  std::vector<int> links;       // indices; none: takes no time
  double bytes_per_prompt = 0;  // beside those of tokens: states
};

// By pair of replicas: prefill * replicas + decode. Empty: KV travels in no time.
struct TransferSetup {
  std::vector<SharedLink> links;
  std::vector<std::vector<KvStream>> routes;
  int layers = 1;  // pushed one by one as the prefill computes them
};

class KvNetwork {
 public:
  explicit KvNetwork(std::vector<SharedLink> links);

  // Times must not go back between calls. `done` is handed back by Finished.
  int64_t Start(const std::vector<int>& links, double bytes, int64_t done, double now);
  // More to send on a flow that has not finished.
  void Extend(int64_t flow, double bytes, double now);
  void Drop(int64_t flow, double now);

  double next_finish_seconds();
  // Takes the flows that are through by now; their `done`, in the order of starting.
  std::vector<int64_t> Finished(double now);

  // What activations take of each link, and how many pipelines they come from.
  struct Background {
    double bytes_per_second = 0;
    int senders = 0;
    bool operator==(const Background&) const = default;
  };
  void SetBackground(int link, const Background& background, double now);
  // What a hop over these links gets while it sends, where `own` (by link of them) is its own part
  // of the background.
  double RateOfHop(const std::vector<int>& links, double own_bytes_per_second) const;
  // Grows whenever flows come or go.
  int64_t version() const { return version_; }

  double RateOf(int64_t flow);  // that has not finished
  const std::vector<SharedLink>& links() const { return links_; }
  const std::vector<double>& carried_bytes() const { return carried_; }  // by link

 private:
  struct Flow {
    int64_t id = 0;
    std::vector<int> links;
    double left = 0;   // bytes, as of `since`
    double since = 0;  // when it got its rate, or more to send
    double rate = 0;
    double finish = 0;  // at this rate
    int64_t done = 0;
    bool found = false;  // hangs together with what changed
    bool fixed = false;  // of the rate, while rates are shared out
  };
  void Advance(double now);
  void Settle();  // rates are what they should be
  // What it has sent until now_.
  void Send(Flow* flow);
  // Takes it out of its links and its place.
  void Remove(int place);
  std::vector<int>::iterator Find(int64_t flow);
  // Those that hang together with changed_, and their links.
  void FindChanged();
  void ShareOut();
  // Bytes per second of a link for `senders` at once.
  double RoomOf(size_t link, double senders) const;

  const std::vector<SharedLink> links_;
  std::vector<Flow> flows_;  // in places that they keep; some are free
  std::vector<int> free_places_;
  std::vector<int> order_;                  // places of flows in the order of starting
  std::vector<std::vector<int>> flows_on_;  // by link: places
  std::vector<double> carried_;
  std::vector<Background> background_;
  std::vector<int> changed_;  // links, since rates were shared out
  int64_t version_ = 0;
  int64_t started_ = 0;
  double now_ = 0;
  double next_finish_;
  bool finish_known_ = true;  // next_finish_ is that of the flows and rates that there are

  // Reused memory, by link but for the links and flows that are found and the flows of one rate.
  std::vector<double> room_, part_;
  std::vector<int> open_;
  std::vector<bool> link_found_;
  std::vector<int> used_, found_, fixed_;
};

}  // namespace tessera::scheduler
