#include "coordinator/client_metrics.h"

namespace tessera::coordinator {

using prometheus::MetricType;

std::vector<prometheus::MetricFamily> ClientFamilies(const std::vector<ModelUse>& uses) {
  std::vector<prometheus::MetricFamily> families;
  const auto add = [&](const char* name, const char* help, MetricType type, const auto& value) {
    prometheus::MetricFamily& family = families.emplace_back();
    family.name = name;
    family.help = help;
    family.type = type;
    for (const ModelUse& model : uses) {
      for (const ClientUse& use : model.clients) {
        prometheus::ClientMetric& metric = family.metric.emplace_back();
        metric.label.push_back({"client", use.client});
        metric.label.push_back({"model_name", model.model});
        (type == MetricType::Gauge ? metric.gauge.value : metric.counter.value) =
            static_cast<double>(value(use));
      }
    }
  };
  add("tessera_client_requests_total", "Requests of the client that were taken.",
      MetricType::Counter, [](const ClientUse& use) { return use.requests; });
  add("tessera_client_refused_total", "Requests beyond the client's limits or part of the queues.",
      MetricType::Counter, [](const ClientUse& use) { return use.refused; });
  add("tessera_client_tokens_total",
      "Tokens of prompts, what the prefix cache held left out, and of answers.",
      MetricType::Counter, [](const ClientUse& use) { return use.tokens; });
  add("tessera_client_deadlines_total", "Requests with a deadline that ended.", MetricType::Counter,
      [](const ClientUse& use) { return use.with_deadline; });
  add("tessera_client_deadlines_missed_total",
      "Of these, those that ended behind their deadline, or were cut off.", MetricType::Counter,
      [](const ClientUse& use) { return use.late; });
  add("tessera_client_requests_waiting", "Requests that no replica has begun.", MetricType::Gauge,
      [](const ClientUse& use) { return use.waiting; });
  return families;
}

}  // namespace tessera::coordinator
