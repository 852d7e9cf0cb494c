//! Seeded generators, a toy target that reads only its cache, tiny checkpoints: for tests.
