// Users: whose a process is, and what they are called. Not for the shim, which must not ask the system's data bases.
// Thread safe.
#pragma once

#include <sys/types.h>

#include <string>

#include "sluice/base/process.h"

namespace sluice {

// Whose process it is (its effective user; root for one whose executable may not be read by its user). False when it is
// gone.
bool user_of(ProcessIdentity identity, uid_t* user);

// The login name, or the number where there is none.
std::string user_name(uid_t user);
std::string group_name(gid_t group);

}  // namespace sluice
