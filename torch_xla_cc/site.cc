#include "torch_xla_cc/site.h"

#include <frameobject.h>

#include <unordered_map>

namespace xla_cc {
namespace {

std::string& PackageFolder() {
  static std::string folder;
  return folder;
}

// Whether a code object is ours; keeps it alive. The interpreter lock guards the map.
bool IsOurs(PyCodeObject* code) {
  static auto* known = new std::unordered_map<PyCodeObject*, bool>;
  const auto found = known->find(code);
  if (found != known->end()) return found->second;
  const char* file = PyUnicode_AsUTF8(code->co_filename);
  if (file == nullptr) PyErr_Clear();
  const std::string& folder = PackageFolder();
  const bool ours =
      file != nullptr && !folder.empty() && std::string(file).compare(0, folder.size(), folder) == 0;
  Py_INCREF(code);
  (*known)[code] = ours;
  return ours;
}

}  // namespace

void SetPackageFolder(const std::string& folder) { PackageFolder() = folder; }

Site CurrentSite() {
  Site site;
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(frame);
  while (frame != nullptr) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const bool ours = IsOurs(code);
    Py_DECREF(code);  // kept by IsOurs
    if (!ours) {
      site.code = code;
#if PY_VERSION_HEX >= 0x030B0000
      site.instruction = PyFrame_GetLasti(frame);
#else
      site.instruction = frame->f_lasti * 2;
#endif
      Py_DECREF(frame);
      return site;
    }
    PyFrameObject* back = PyFrame_GetBack(frame);
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

std::string ToString(const CallSite& site) {
  return site.file.empty() ? "an unknown place (no Python caller)"
                           : site.file + ":" + std::to_string(site.line);
}

}  // namespace xla_cc
