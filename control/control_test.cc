#include "sluice/control.h"

#include <gtest/gtest.h>
