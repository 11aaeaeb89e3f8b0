// What kind of terminal standard output is. A file of its own, because <term.h> makes macros of everyday words.
#pragma once

#include "sluice/base/status.h"

namespace sluice::cli {

// Whether $TERM names a terminal whose cursor can be moved. Errors: kUnavailable.
Status check_terminal();

}  // namespace sluice::cli
