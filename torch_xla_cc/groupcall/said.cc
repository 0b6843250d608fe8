#include "torch_xla_cc/groupcall/said.h"

#include <algorithm>
#include <sstream>

#include "torch_xla_cc/groupcall/transfers.h"

namespace xla_cc {
namespace {

std::string Text(const std::vector<int64_t>& numbers) {
  std::string text;
  for (int64_t number : numbers) text += (text.empty() ? "" : ",") + std::to_string(number);
  return text;
}

std::vector<int64_t> Numbers(const std::string& text) {
  std::vector<int64_t> numbers;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    numbers.push_back(std::stoll(text.substr(at, end - at)));
    at = end + 1;
  }
  return numbers;
}

}  // namespace

// A line each: none of the texts has several.
std::string Encode(const Said& said) {
  std::string text =
      said.what + "\n" + Text(said.sent) + "\n" + Text(said.received) + "\n" + said.site;
  for (const TransferEnd& end : said.ends) {
    std::vector<int64_t> numbers{end.sends, end.peer, end.tag, end.dtype};
    numbers.insert(numbers.end(), end.dims.begin(), end.dims.end());
    text += "\n" + Text(numbers) + "\n" + end.text;
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
    const std::vector<int64_t> numbers = Numbers(line);
    TransferEnd end{numbers.at(0) != 0,
                    numbers.at(1),
                    numbers.at(2),
                    numbers.at(3),
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
    const size_t begin = text.find('\n', at) + 1;
    const size_t size = std::stoull(text.substr(at, begin - at));
    calls.push_back(Decode(text.substr(begin, size)));
    at = begin + size;
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
