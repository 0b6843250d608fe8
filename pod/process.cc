#include "pod/process.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <thread>

#include "pod/failure.h"

extern char** environ;

namespace xla_cc::pod {
namespace {

constexpr int kSocket = 3;

std::string HowItEnded(int status) {
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    return "was killed by signal " + std::to_string(number) + " (" + strsignal(number) + ")";
  }
  return "ended with status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

Process Process::Start(const std::vector<std::string>& command, int socket) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, socket, kSocket);
  // A mask of this thread would be its own for good.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);

  pid_t pid = -1;
  const int error =
      posix_spawn(&pid, arguments[0], &actions, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    throw Failure(abi::Code::kUnavailable, "the device process of the pod cannot be started: " +
                                               command[0] + ": " + std::strerror(error));
  }
  return Process(pid);
}

bool Process::IsStopped() const {
  std::ifstream file("/proc/" + std::to_string(pid_) + "/stat");
  std::string line;
  std::getline(file, line);
  const size_t name = line.rfind(')');  // which may have anything in it
  return name != std::string::npos && line.compare(name, 3, ") T") == 0;
}

std::string Process::End(std::chrono::milliseconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  int status = 0;
  bool killed = false;
  while (true) {
    const pid_t ended = waitpid(pid_, &status, killed ? 0 : WNOHANG);
    if (ended == pid_) return killed ? "did not end, and was killed" : HowItEnded(status);
    if (ended < 0 && errno != EINTR) return "ended, and someone else asked how";
    if (ended == 0 && std::chrono::steady_clock::now() > until) {
      kill(pid_, SIGKILL);
      killed = true;
    }
    if (!killed) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace xla_cc::pod
