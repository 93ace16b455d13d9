#include "scheduler/simulator/pictures.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_format.h"

namespace tessera::scheduler {
namespace {

constexpr double kLeft = 70, kRight = 20, kTop = 40, kWidth = 900;
constexpr const char* kBlue = "#2563a8";
constexpr const char* kOrange = "#d97917";
constexpr const char* kGrey = "#8a8a8a";

std::string Head(double height, const std::string& title) {
  return absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" width=\"%g\" height=\"%g\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
      "<text x=\"%g\" y=\"22\" font-size=\"15\">%s</text>\n",
      kWidth, height, kWidth, height, kLeft, title);
}

std::string Escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    out += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  }
  return out;
}

// 1, 2 or 5 times a power of ten, so that about `ticks` of them make `range`.
double TickStep(double range, int ticks) {
  const double raw = range / ticks;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (raw <= factor * power) return factor * power;
  }
  return 10 * power;
}

// A rectangle with axes from 0; maps values to it.
struct Frame {
  double top, height, x_max, y_max;

  double X(double x) const { return kLeft + x / x_max * (kWidth - kLeft - kRight); }
  double Y(double y) const { return top + height - y / y_max * height; }

  std::string Axes(const char* x_unit, int y_ticks) const {
    std::string out;
    const double y_step = TickStep(y_max, y_ticks), x_step = TickStep(x_max, 9);
    for (double y = 0; y <= y_max * 1.0001; y += y_step) {
      absl::StrAppendFormat(&out,
                            "<line x1=\"%g\" y1=\"%.1f\" x2=\"%g\" y2=\"%.1f\" stroke=\"#ddd\"/>"
                            "<text x=\"%g\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n",
                            kLeft, Y(y), kWidth - kRight, Y(y), kLeft - 6, Y(y) + 4, y);
    }
    for (double x = 0; x <= x_max * 1.0001; x += x_step) {
      absl::StrAppendFormat(&out,
                            "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%g%s</text>\n",
                            X(x), top + height + 16, x, x_unit);
    }
    return out;
  }
};

std::string Line(const Frame& frame, std::span<const std::pair<double, double>> points,
                 const char* colour) {
  std::string out = "<polyline fill=\"none\" stroke-width=\"1.5\" stroke=\"";
  out += colour;
  out += "\" points=\"";
  for (const auto& [x, y] : points)
    absl::StrAppendFormat(&out, "%.1f,%.1f ", frame.X(x), frame.Y(y));
  return out + "\"/>\n";
}

constexpr double kFootLine = 16;

// The text in lines that the picture is wide enough for.
std::vector<std::string> FootLines(std::string_view text) {
  constexpr double kLetterWidth = 6.6;  // on average
  constexpr auto kMaxLetters = static_cast<size_t>((kWidth - kLeft - kRight) / kLetterWidth);
  std::vector<std::string> lines;
  while (!text.empty()) {
    size_t end = text.size() <= kMaxLetters ? text.size() : text.rfind(' ', kMaxLetters);
    if (end == std::string_view::npos) end = kMaxLetters;  // one word
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
    if (text.starts_with(' ')) text.remove_prefix(1);
  }
  return lines;
}

std::string Foot(double top, const std::vector<std::string>& lines) {
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    absl::StrAppendFormat(&out, "<text x=\"%g\" y=\"%g\" fill=\"#555\">%s</text>\n", kLeft,
                          top + kFootLine * static_cast<double>(i), Escaped(lines[i]));
  }
  return out;
}

}  // namespace

std::string AttainmentSvg(std::span<const RatePoint> points, double wanted_attainment,
                          std::string_view rests_on) {
  const std::vector<std::string> foot = FootLines(rests_on);
  const double bottom = kTop + 380;
  double most = 0;
  for (const RatePoint& p : points) most = std::max(most, p.requests_per_second);
  const Frame frame{kTop, 320, std::max(most, 1e-9), 100};
  std::string out =
      Head(bottom + kFootLine * static_cast<double>(foot.size()),
           "requests that meet their objectives, % over requests/s; dashed: what is asked for");
  out += frame.Axes("", 5);
  std::vector<std::pair<double, double>> line;
  for (const RatePoint& p : points)
    line.emplace_back(p.requests_per_second, 100 * p.report.attainment);
  out += Line(frame, line, kBlue);
  for (const auto& [x, y] : line) {
    absl::StrAppendFormat(&out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n",
                          frame.X(x), frame.Y(y), kBlue);
  }
  const double y = frame.Y(100 * wanted_attainment);
  absl::StrAppendFormat(&out,
                        "<line x1=\"%g\" y1=\"%.1f\" x2=\"%g\" y2=\"%.1f\" stroke=\"%s\" "
                        "stroke-dasharray=\"5 4\"/>\n",
                        kLeft, y, kWidth - kRight, y, kOrange);
  return out + Foot(bottom, foot) + "</svg>\n";
}

std::string TimelineSvg(const SimulationResult& result, std::string_view rests_on) {
  constexpr double kRow = 110;
  double end = 1e-9, most = 1;
  for (const LoadSample& s : result.samples) {
    end = std::max(end, s.seconds);
    most = std::max(most, static_cast<double>(s.running + s.waiting));
  }
  const std::vector<std::string> foot = FootLines(rests_on);
  const double bottom = kTop + static_cast<double>(result.replicas.size()) * kRow + 20;
  std::string out = Head(bottom + kFootLine * static_cast<double>(foot.size()),
                         "sequences over time: running (blue), with those waiting (orange); KV in "
                         "use (grey, full height = all of it)");
  for (size_t r = 0; r < result.replicas.size(); ++r) {
    const Frame frame{kTop + static_cast<double>(r) * kRow, kRow - 40, end, most};
    std::vector<std::pair<double, double>> running, all, kv;
    for (const LoadSample& s : result.samples) {
      if (s.replica != static_cast<int>(r)) continue;
      running.emplace_back(s.seconds, static_cast<double>(s.running));
      all.emplace_back(s.seconds, static_cast<double>(s.running + s.waiting));
      kv.emplace_back(s.seconds, s.kv_used * most);
    }
    out += frame.Axes(" s", 2);
    absl::StrAppendFormat(&out, "<text x=\"8\" y=\"%.1f\">%s</text>\n", frame.top + 12,
                          Escaped(result.replicas[r].name));
    out += Line(frame, kv, kGrey) + Line(frame, all, kOrange) + Line(frame, running, kBlue);
  }
  return out + Foot(bottom, foot) + "</svg>\n";
}

}  // namespace tessera::scheduler
