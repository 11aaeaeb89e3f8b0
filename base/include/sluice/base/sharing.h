// Who shares a runtime directory, and with it the files in it: one user, or the members of a group.
//
// A directory is private when it is its user's alone (mode 0700). It is a group's when it has the set-group-ID bit, so
// that new files belong to the group, lets the group read and write, and is closed to others (2770); every member may
// replace everything in it. Uses no C++ runtime library: the shim uses it too. Thread safe.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include "sluice/base/status.h"

namespace sluice {

struct Sharing {
  uid_t owner = 0;        // of the directory
  bool by_group = false;  // else by nobody
  gid_t group = 0;        // that shares it
  mode_t file_mode() const { return by_group ? 0660 : 0600; }
};

// How `directory` is shared; never through a symbolic link. Errors: kNotFound; kPermissionDenied, with what to do, when
// it is neither the caller's own and private nor that of a group which the caller is a member of.
Status sharing_of(const char* directory, Sharing* out);

// How the directory that `path` lies in is shared.
Status sharing_around(const char* path, Sharing* out);

// Whether the caller counts as a member; root does.
bool is_member(gid_t group);

// Gives a file that the caller just made in such a directory its mode, whatever the umask, and its group.
// Errors: errno's as kInternal or kPermissionDenied.
Status share_file(int fd, const Sharing& sharing, const char* path);

// fstat, which is a symbol of glibc 2.33 and newer only. Returns 0, or -1 with errno set.
int file_status(int fd, struct stat* out);

}  // namespace sluice
