//! What whoever builds for another system than Linux is told, in place of a hundred errors about what it lacks.

compile_error!(
    "Phalanx runs on Linux alone: its ranks share memory, wait for each other and see each other's ends by what Linux has for that"
);
