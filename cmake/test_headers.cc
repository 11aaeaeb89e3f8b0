// No test: the target that the precompiled headers of the tests belong to.
