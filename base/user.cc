#include "sluice/base/user.h"

#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>

#include <array>
#include <cstdio>
#include <vector>

namespace sluice {

bool user_of(ProcessIdentity identity, uid_t* user) {
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%d", static_cast<int>(pid_of(identity)));
  struct stat st;
  if (identity == 0 || stat(path, &st) != 0 || !is_alive(identity)) return false;
  *user = st.st_uid;
  return true;
}

std::string user_name(uid_t user) {
  std::array<char, 4096> buffer;
  passwd entry;
  passwd* found = nullptr;
  getpwuid_r(user, &entry, buffer.data(), buffer.size(), &found);
  return found != nullptr ? found->pw_name : std::to_string(user);
}

std::string group_name(gid_t group) {
  std::vector<char> buffer(1 << 16);  // the members are in it
  ::group entry;
  ::group* found = nullptr;
  getgrgid_r(group, &entry, buffer.data(), buffer.size(), &found);
  return found != nullptr ? found->gr_name : std::to_string(group);
}

}  // namespace sluice
