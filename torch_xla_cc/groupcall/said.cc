#include "torch_xla_cc/groupcall/said.h"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "torch_xla_cc/errors.h"
#include "torch_xla_cc/groupcall/transfers.h"

namespace xla_cc {
namespace {

std::string Text(const std::vector<int64_t>& numbers) {
  std::string text;
  for (int64_t number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return text;
}

[[noreturn]] void ThrowUnreadable(const std::string& line) {
  throw RanksDisagree("what another rank of the group says of its call cannot be read, at '" +
                      line.substr(0, 100) + "'. Install one version of torch_xla_cc everywhere");
}

// At least so many.
std::vector<int64_t> Numbers(const std::string& text, size_t least = 0) {
  std::vector<int64_t> numbers;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    const char* const next = std::find(at, end, ',');
    int64_t number = 0;
    const auto [stopped, error] = std::from_chars(at, next, number);
    if (error != std::errc() || stopped != next) ThrowUnreadable(text);
    numbers.push_back(number);
    at = next + 1;
  }
  if (numbers.size() < least) ThrowUnreadable(text);
  return numbers;
}

std::string OneLine(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');  // a file may have it in its name
  return text;
}

// Why a rank's parts are not one for each rank of the group; empty if they are, or there are none.
std::string WrongParts(const RankGroup& group, const std::vector<Said>& calls) {
  const bool parts = !calls[0].sent.empty();
  const size_t count = parts ? calls.size() : 0;
  for (size_t rank = 0; rank < calls.size(); ++rank) {
    const Said& said = calls[rank];
    if (said.sent.size() == count && (said.received.size() == count || !parts)) continue;
    return "group " + group.name + ": in " + said.what + " at " + said.site + ", " +
           RankName(group, static_cast<int>(rank)) + " sends " + std::to_string(said.sent.size()) +
           " parts and expects " + std::to_string(said.received.size()) + ", and " +
           RankName(group, 0) + " sends " + std::to_string(calls[0].sent.size()) +
           ". Send one to each of the " + std::to_string(calls.size()) + " ranks";
  }
  return "";
}

}  // namespace

// A line each.
std::string Encode(const Said& said) {
  std::string text = OneLine(said.what) + "\n" + Text(said.sent) + "\n" + Text(said.received) +
                     "\n" + OneLine(said.site);
  for (const TransferEnd& end : said.ends) {
    std::vector<int64_t> numbers{end.sends, end.peer, end.tag, end.dtype};
    numbers.insert(numbers.end(), end.dims.begin(), end.dims.end());
    text += "\n" + Text(numbers) + "\n" + OneLine(end.text);
  }
  return text;
}

Said Decode(const std::string& text) {
  std::istringstream lines(text);
  Said said;
  std::string line;
  std::getline(lines, said.what);
  if (std::getline(lines, line)) said.sent = Numbers(line);
  if (std::getline(lines, line)) said.received = Numbers(line);
  std::getline(lines, said.site);
  while (std::getline(lines, line)) {
    const std::vector<int64_t> numbers = Numbers(line, 4);
    TransferEnd end{numbers[0] != 0,
                    numbers[1],
                    numbers[2],
                    numbers[3],
                    {numbers.begin() + 4, numbers.end()},
                    ""};
    std::getline(lines, end.text);
    said.ends.push_back(std::move(end));
  }
  return said;
}

// The length of each goes before it.
std::string EncodeAll(const std::vector<Said>& calls) {
  std::string all;
  for (const Said& said : calls) {
    const std::string text = Encode(said);
    all += std::to_string(text.size()) + "\n" + text;
  }
  return all;
}

std::vector<Said> DecodeAll(const std::string& text) {
  std::vector<Said> calls;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    const std::string length = text.substr(at, end == std::string::npos ? end : end - at);
    const std::vector<int64_t> size = Numbers(length, 1);
    const size_t left = end == std::string::npos ? 0 : text.size() - end - 1;
    if (size.size() > 1 || size[0] < 0 || static_cast<uint64_t>(size[0]) > left) {
      ThrowUnreadable(length);
    }
    calls.push_back(Decode(text.substr(end + 1, size[0])));
    at = end + 1 + size[0];
  }
  return calls;
}

std::string Mismatch(const RankGroup& group, const std::vector<Said>& calls, bool sites) {
  const auto differs = [&](const Said& said) {
    return said.what != calls[0].what || (sites && said.site != calls[0].site);
  };
  const int size = static_cast<int>(calls.size());
  if (std::any_of(calls.begin(), calls.end(), differs)) {
    std::string text = "group " + group.name + ": the ranks make different calls: ";
    std::vector<bool> told(size, false);
    for (int rank = 0; rank < size; ++rank) {
      if (told[rank]) continue;
      text += rank > 0 ? "; " : "";
      for (int other = rank; other < size; ++other) {
        const Said& said = calls[other];
        if (said.what != calls[rank].what || said.site != calls[rank].site) continue;
        text += (other == rank ? "" : ", ") + RankName(group, other);
        told[other] = true;
      }
      text += ": " + calls[rank].what + " at " + calls[rank].site;
    }
    return text +
           ". Every rank of a group must make the same calls in the same order, with the same "
           "shapes and types";
  }
  if (const std::string wrong = WrongParts(group, calls); !wrong.empty()) return wrong;
  for (int from = 0; from < size; ++from) {
    for (int to = 0; to < size; ++to) {
      if (calls[from].sent.empty() || calls[from].sent[to] == calls[to].received[from]) continue;
      return "group " + group.name + ": in " + calls[from].what + ", " + RankName(group, from) +
             " sends " + RankName(group, to) + " a part of size " +
             std::to_string(calls[from].sent[to]) + " at " + calls[from].site + ", which expects " +
             std::to_string(calls[to].received[from]) + " at " + calls[to].site +
             ". Tell both the same split sizes, or shapes";
    }
  }
  std::string wrong;
  Matched(group, calls, &wrong);
  return wrong;
}

}  // namespace xla_cc
