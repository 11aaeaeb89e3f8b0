#include "sluice/policy.h"
