// Changes which function a loaded library calls.
#pragma once

namespace sluice::shim {

// From now on `library`, a handle of dlopen, calls `replacement` for the function `symbol` that it imports. False if it
// imports none of that name, or if its table could not be written; nothing is changed then.
bool replace_import(void* library, const char* symbol, void* replacement);

}  // namespace sluice::shim
