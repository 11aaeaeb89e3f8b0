// The profiles built into the library, by name.
#pragma once

namespace sluice::emulator {

struct EmbeddedProfile {
  const char* key;
  const char* text;
};
extern const EmbeddedProfile kEmbeddedProfiles[];
extern const int kEmbeddedProfileCount;

}  // namespace sluice::emulator
