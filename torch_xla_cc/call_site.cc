#include "torch_xla_cc/call_site.h"

#include <frameobject.h>
#include <torch/csrc/utils/pybind.h>

#include <cstring>
#include <unordered_map>

namespace xla_cc {
namespace {

enum class Owner { kUser, kLibrary, kOurs };

struct Folders {
  std::string ours;
  std::vector<std::string> libraries;
};

Folders& TheFolders() {
  static auto* folders = new Folders;
  return *folders;
}

bool Under(const char* file, const std::string& folder) {
  return file != nullptr && !folder.empty() &&
         std::strncmp(file, folder.data(), folder.size()) == 0;
}

// Whose a code object is; keeps it alive. The interpreter lock guards the map.
Owner OwnerOf(PyCodeObject* code) {
  static auto* known = new std::unordered_map<PyCodeObject*, Owner>;
  const auto found = known->find(code);
  if (found != known->end()) return found->second;
  const char* file = PyUnicode_AsUTF8(code->co_filename);
  if (file == nullptr) PyErr_Clear();
  Owner owner = Owner::kUser;
  for (const std::string& library : TheFolders().libraries) {
    if (Under(file, library)) owner = Owner::kLibrary;
  }
  if (Under(file, TheFolders().ours)) owner = Owner::kOurs;
  Py_INCREF(code);
  (*known)[code] = owner;
  return owner;
}

int InstructionOf(PyFrameObject* frame) {
#if PY_VERSION_HEX >= 0x030B0000
  return PyFrame_GetLasti(frame);
#else
  return frame->f_lasti * 2;
#endif
}

}  // namespace

void SetFolders(const std::string& ours, const std::vector<std::string>& libraries) {
  TheFolders() = {ours, libraries};
}

Site CurrentSite() {
  Site site;
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(frame);
  while (frame != nullptr) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const Owner owner = OwnerOf(code);
    Py_DECREF(code);  // kept by OwnerOf
    if (owner == Owner::kUser || (owner == Owner::kLibrary && site.code == nullptr)) {
      site = {code, InstructionOf(frame)};
    }
    PyFrameObject* back = owner == Owner::kUser ? nullptr : PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  return site;
}

CallSite Resolve(const Site& site) {
  if (site.code == nullptr) return {};
  const char* file = PyUnicode_AsUTF8(site.code->co_filename);
  if (file == nullptr) {
    PyErr_Clear();
    return {};
  }
  return {file, PyCode_Addr2Line(site.code, site.instruction)};
}

std::string Text(const Site& site) {
  const py::gil_scoped_acquire locked;
  const CallSite place = Resolve(site);
  return place.file.empty() ? "an unknown place (no Python caller)"
                            : place.file + ":" + std::to_string(place.line);
}

}  // namespace xla_cc
