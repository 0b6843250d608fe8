// From what callers pass to a node: Python objects on the fast path, IValues from the dispatcher.
#pragma once

#include <torch/csrc/utils/pybind.h>
#include <torch/library.h>

#include <string>
#include <vector>

#include "lowering/collective.h"

namespace xla_cc {

// Throws BadValue if there is none of that name.
ReduceKind ParseReduceKind(const char* op, const char* name, const std::string& text);

// Fills a node's fields, in their order, from Python arguments.
class PythonReader {
 public:
  PythonReader(const char* op, PyObject* const* args, size_t count)
      : op_(op), args_(args), count_(count) {}
  void operator()(const char* name, int64_t& value);
  void operator()(const char* name, std::optional<int64_t>& value);
  void operator()(const char* name, double& value);
  void operator()(const char* name, ReduceKind& value);
  void operator()(const char* name, Groups& value);
  void operator()(const char* name, Pairs& value);
  void operator()(const char* name, Sizes& value);
  void operator()(const char* name, SizeMatrix& value);
  void Finish() const;  // no argument is left over

 private:
  PyObject* Next(const char* name);
  int64_t Int(const char* name, PyObject* object);
  std::vector<int64_t> Ints(const char* name, PyObject* object, const char* what);
  std::vector<std::vector<int64_t>> Lists(const char* name, PyObject* object, const char* what);
  [[noreturn]] void Wrong(const char* name, PyObject* value, const char* required) const;

  const char* op_;
  PyObject* const* args_;
  size_t count_;
  size_t next_ = 0;
};

// The same from the stack of a boxed kernel.
class StackReader {
 public:
  StackReader(const char* op, c10::ArrayRef<c10::IValue> values) : op_(op), values_(values) {}
  void operator()(const char*, int64_t& value) { value = values_[next_++].toInt(); }
  void operator()(const char*, std::optional<int64_t>& value) {
    value = values_[next_++].toOptional<int64_t>();
  }
  void operator()(const char*, double& value) { value = values_[next_++].toDouble(); }
  void operator()(const char* name, ReduceKind& value);
  void operator()(const char*, Groups& value) { value = Groups(Lists()); }
  void operator()(const char* name, Pairs& value);
  void operator()(const char*, Sizes& value) { value = values_[next_++].toIntVector(); }
  void operator()(const char*, SizeMatrix& value) { value = Lists(); }

 private:
  std::vector<std::vector<int64_t>> Lists();
  const char* op_;
  c10::ArrayRef<c10::IValue> values_;
  size_t next_ = 0;
};

// The inverse: a node's fields as IValues, and as the arguments of a schema.
class StackWriter {
 public:
  explicit StackWriter(torch::jit::Stack* stack) : stack_(stack) {}
  void operator()(const char*, int64_t value) { stack_->emplace_back(value); }
  void operator()(const char*, const std::optional<int64_t>& value) { stack_->emplace_back(value); }
  void operator()(const char*, double value) { stack_->emplace_back(value); }
  void operator()(const char*, ReduceKind value) { stack_->emplace_back(Name(value)); }
  void operator()(const char*, const Groups& value) { Lists(value.list()); }
  void operator()(const char*, const Pairs& value);
  void operator()(const char*, const Sizes& value) { stack_->emplace_back(value); }
  void operator()(const char*, const SizeMatrix& value) { Lists(value); }

 private:
  void Lists(const std::vector<std::vector<int64_t>>& lists);
  torch::jit::Stack* stack_;
};

class SchemaWriter {
 public:
  void operator()(const char* name, int64_t) { Add("int", name); }
  void operator()(const char* name, const std::optional<int64_t>&) { Add("int?", name); }
  void operator()(const char* name, double) { Add("float", name); }
  void operator()(const char* name, ReduceKind) { Add("str", name); }
  void operator()(const char* name, const Groups&) { Add("int[][]", name); }
  void operator()(const char* name, const Pairs&) { Add("int[][]", name); }
  void operator()(const char* name, const Sizes&) { Add("int[]", name); }
  void operator()(const char* name, const SizeMatrix&) { Add("int[][]", name); }
  const std::string& text() const { return text_; }

 private:
  void Add(const std::string& type, const std::string& name) { text_ += ", " + type + " " + name; }
  std::string text_;
};

}  // namespace xla_cc
